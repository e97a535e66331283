"""Steps: generators that yield the result of a gate and are sent its decision; for threads and event loops."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any, TypeVar

from headgate.engine import Decision

T = TypeVar("T")
Steps = Generator[Any, Any, T]
"""A generator that yields a decision, or something to wait for, and returns its result."""


class Deferred:
    """Something that steps wait for, in a thread or in an event loop: the runner of the steps chooses."""

    def now(self) -> Any:  # noqa: ANN401
        """Wait in this thread."""
        raise NotImplementedError

    def __await__(self) -> Generator[Any, Any, Any]:
        raise NotImplementedError


def run(steps: Steps[T]) -> T:
    """Run steps whose gates answer at once."""
    try:
        given = next(steps)
        while True:
            if isinstance(given, Deferred):
                try:
                    given = given.now()
                except BaseException as error:
                    given = steps.throw(error)
                    continue
            given = steps.send(given)
    except StopIteration as done:
        value: T = done.value
        return value


async def run_awaiting(steps: Steps[T]) -> T:
    """Run steps whose gates may need to be awaited."""
    try:
        given = next(steps)
        while True:
            if given is not None and not isinstance(given, Decision):
                try:
                    given = await given
                except BaseException as error:
                    given = steps.throw(error)
                    continue
            given = steps.send(given)
    except StopIteration as done:
        value: T = done.value
        return value


_unfinished: set[asyncio.Task[Any]] = set()
"""Strong references to running tasks: the event loop has only weak ones."""


async def run_to_the_end(steps: Steps[None]) -> None:
    """Like `run_awaiting`, but shielded from cancellation: nobody will run these steps again."""
    task = asyncio.get_running_loop().create_task(run_awaiting(steps))
    _unfinished.add(task)
    task.add_done_callback(_unfinished.discard)
    await asyncio.shield(task)
