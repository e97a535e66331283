"""Celery: tasks that wait for their turn.

@app.task(bind=True)
@throttled(limiter, key=lambda customer, *_: customer, wait=2.0)
def charge(self, customer, amount): ...
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Final, ParamSpec, TypeVar, cast

from headgate.wording import requiring

with requiring("headgate.tasks.celery", "celery"):
    from celery import Task, current_task  # type: ignore[import-untyped]
    from celery.exceptions import Retry  # type: ignore[import-untyped]
    from celery.local import Proxy  # type: ignore[import-untyped]


from headgate.errors import InvalidCall
from headgate.tasks.throttle import Throttle, Turn, arguments_of

P = ParamSpec("P")
R = TypeVar("R")

IN_LINE: Final = "headgate_in_line"
"""The header of a task that keeps its place in line. Its value is the number of retries: a retry after an error copies
the headers, but takes a new place."""


class HandedBack(Retry):  # type: ignore[misc]
    """Tells the worker that the task was sent again, as Celery's own `Retry` does."""


class throttled(Throttle):  # noqa: N801 - a decorator
    """Run the task when the limit allows it: wait up to `wait` seconds in the worker, else hand it back to the queue.

    Write it below `@app.task`, bound or not. `key` and `cost` may be functions of the task's arguments, without `self`.
    A task that is handed back is not charged, and uses none of its retries.
    """

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Return the function, which waits for its turn."""
        if issubclass(type(function), (Task, Proxy)):  # Celery has it already, and would run it without the limit
            raise InvalidCall("@throttled is above the decorator of a task, which runs without it; swap the two lines")

        @functools.wraps(function)
        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            bound = bool(args) and isinstance(args[0], Task)
            task = args[0] if bound else _task_of(run)
            given, by_name = arguments_of(function, *args, **kwargs)
            turn = _turn(self, task, given[bound:], by_name)
            if not turn:
                raise _handed_back(task, turn)
            with turn:
                try:
                    return function(*args, **kwargs)
                except HandedBack:  # by another throttle below this one
                    turn.cancel()
                    raise

        # Celery checks the arguments of `delay` by the signature, and does not follow `__wrapped__`.
        cast("Any", run).__signature__ = inspect.signature(function)
        return run


def _task_of(function: Callable[..., Any]) -> Any:  # noqa: ANN401
    """Return the task for which a worker runs this function; None if other code calls it, such as another task."""
    if not current_task:
        return None
    called = getattr(current_task.run, "__func__", current_task.run)
    return current_task if inspect.unwrap(called, stop=lambda each: each is function) is function else None


def _turn(throttle: Throttle, task: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Turn:  # noqa: ANN401
    request = task.request if task else None
    if request is None or request.called_directly or request.is_eager:
        return throttle.take_or_raise(*args, **kwargs)
    came_back = (request.headers or {}).get(IN_LINE) == request.retries
    return throttle.take(*args, came_back=came_back, **kwargs)


def _handed_back(task: Any, turn: Turn) -> HandedBack:  # noqa: ANN401
    """Send the same task again; `Task.retry` would use one of its retries."""
    request = task.request
    headers = {**(request.headers or {}), IN_LINE: request.retries if turn.in_line else None}
    again = task.signature_from_request(request, countdown=turn.come_back, retries=request.retries, headers=headers)
    again.apply_async()
    return HandedBack(f"rate limited: handed back for {turn.come_back:.3f} s", when=turn.come_back, sig=again)
