"""RQ: jobs that wait for their turn.

    @throttled(limiter, key=lambda customer, *_: customer, wait=2.0)
    def charge(customer, amount): ...

    queue.enqueue(charge, "ann", 12)

RQ brings back jobs that were scheduled only where a worker runs with its scheduler: `rq worker --with-scheduler`.
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


from headgate.tasks.throttle import Throttle, arguments_of
from headgate.tasks.turn import Turn

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

HANDED_BACK: Final = "headgate_handed_back"
"""In the meta data of a job that was handed back: RQ's two counts of retries then, and whether its place is kept."""


class HandedBack(Retry):
    """What a job returns to be scheduled again."""


class throttled(Throttle):  # noqa: N801 - a decorator
    """Run the job when the limit allows it: wait up to `wait` seconds in the worker, else have it scheduled again.

    `key` and `cost` may be functions of the job's arguments. Nothing is charged for a job that is handed back, and none
    of its retries is used. RQ schedules in whole seconds.
    """

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """The function, as a job that waits for its turn."""

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
            if isinstance(result, HandedBack):  # by another throttle, below this one
                turn.cancel()
            elif job is not None and HANDED_BACK in job.meta:
                job.meta[HANDED_BACK] = None  # meta data that is empty is not saved
            return cast("R", _within(turn, result)) if inspect.iscoroutine(result) else result

        return run


def _job_of(function: Callable[..., Any]) -> Job | None:
    """The job that a worker runs a function for; None where something else calls it, another job perhaps."""
    job = get_current_job()
    if job is None or job.worker_name == "sync":  # of a queue with is_async=False
        return None
    called = getattr(job.func, "__func__", job.func)  # of a method
    return job if inspect.unwrap(called, stop=lambda each: each is function) is function else None


async def _within(turn: Turn, work: Coroutine[Any, Any, T]) -> T:
    """RQ awaits what an async function gives, after that has returned."""
    with turn:
        return await work


def _came_back(job: Job) -> bool:
    """Whether its place in line is kept; after an error it begins anew."""
    left, returned, in_line = job.meta.get(HANDED_BACK) or (None, None, False)
    if returned is None or left != job.retries_left:
        return False
    job.number_of_retries = returned  # most versions of RQ have counted that it was handed back, some have not
    return bool(in_line)


def _handed_back(job: Job, turn: Turn) -> HandedBack:
    job.meta[HANDED_BACK] = [job.retries_left, job.number_of_retries or 0, turn.in_line]
    return HandedBack(max=sys.maxsize, interval=math.ceil(turn.come_back))
