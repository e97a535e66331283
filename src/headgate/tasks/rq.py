"""RQ: jobs that wait for their turn.

    @throttled(limiter, key=lambda customer, *_: customer, wait=2.0)
    def charge(customer, amount): ...

    queue.enqueue(charge, "ann", 12)

RQ runs scheduled jobs only if a worker runs with its scheduler: `rq worker --with-scheduler`.
"""

from __future__ import annotations

import functools
import inspect
import math
import sys
from collections.abc import Callable, Coroutine
from typing import Any, Final, ParamSpec, TypeVar, cast

from headgate.wording import requiring

with requiring("headgate.tasks.rq", "rq"):
    from rq import Retry, get_current_job
    from rq.job import Job


from headgate.tasks.throttle import Throttle, Turn, arguments_of

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

HANDED_BACK: Final = "headgate_handed_back"
"""The metadata of a job that was handed back: RQ's two counts of retries, and whether the job keeps its place."""


class HandedBack(Retry):
    """The result with which a job asks RQ to schedule it again."""


class throttled(Throttle):  # noqa: N801 - a decorator
    """Run the job when the limit allows it: wait up to `wait` seconds in the worker, else schedule it again.

    `key` and `cost` may be functions of the job's arguments. A job that is handed back is not charged, and uses none of
    its retries. RQ schedules in whole seconds.
    """

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Return the function, which waits for its turn."""

        @functools.wraps(function)
        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            given, by_name = arguments_of(function, *args, **kwargs)
            job = _job_of(run)
            if job is None:
                turn = self.take_or_raise(*given, **by_name)
            else:
                turn = self.take(*given, came_back=_came_back(job), **by_name)
                if not turn:
                    return cast("R", _handed_back(job, turn))
            with turn:
                result = function(*args, **kwargs)
            if isinstance(result, HandedBack):  # by another throttle below this one
                turn.cancel()
            elif job is not None and HANDED_BACK in job.meta:
                job.meta[HANDED_BACK] = None  # RQ does not save empty metadata
            return cast("R", _within(turn, result)) if inspect.iscoroutine(result) else result

        return run


def _job_of(function: Callable[..., Any]) -> Job | None:
    """Return the job for which a worker runs this function; None if other code calls it, such as another job."""
    job = get_current_job()
    if job is None or job.worker_name == "sync":  # the queue has is_async=False
        return None
    called = getattr(job.func, "__func__", job.func)  # a method's function
    return job if inspect.unwrap(called, stop=lambda each: each is function) is function else None


async def _within(turn: Turn, work: Coroutine[Any, Any, T]) -> T:
    """Await a coroutine within its turn: RQ awaits it after the function has returned."""
    with turn:
        return await work


def _came_back(job: Job) -> bool:
    """Return whether the job keeps its place in line; after an error it takes a new one."""
    left, returned, in_line = job.meta.get(HANDED_BACK) or (None, None, False)
    if returned is None or left != job.retries_left:
        return False
    job.number_of_retries = returned  # most versions of RQ count a job handed back as a retry, some do not
    return bool(in_line)


def _handed_back(job: Job, turn: Turn) -> HandedBack:
    job.meta[HANDED_BACK] = [job.retries_left, job.number_of_retries or 0, turn.in_line]
    return HandedBack(max=sys.maxsize, interval=math.ceil(turn.come_back))
