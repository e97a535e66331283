"""Steps that are written once, as generators, for threads and for event loops.

A generator yields the result of a step, or an awaitable of it, and is sent the result; an error of the awaitable is
thrown into the generator. In a thread, a step has its result at once, and its error is raised where it is called.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from typing import TYPE_CHECKING, Any, Final, TypeVar

from headgate.errors import InvalidCall

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Task

T = TypeVar("T")
Steps = Generator[Any, Any, T]
"""A generator that yields results or awaitables, and returns the result of all steps."""
NO_LOOP: Final = (
    "no event loop of asyncio runs here: waiting, and stores that are awaited, need asyncio; trio is not supported, "
    "also not as the backend of anyio. Run the app on asyncio, or call a Limiter in a thread, as in "
    "trio.to_thread.run_sync(limiter.hit, key)"
)


class NoEventLoop(InvalidCall):
    """A coroutine needs asyncio and runs elsewhere: a mistake in the program, and not an outage of a store."""


def running_loop() -> AbstractEventLoop:
    """Return the running event loop of asyncio, or raise `NoEventLoop`, as under trio."""
    from asyncio import _get_running_loop  # here, because a limiter for threads needs no event loop

    loop = _get_running_loop()
    if loop is None:
        raise NoEventLoop(NO_LOOP)
    return loop


class Deferred:
    """A step that waits, in a thread or in an event loop: the runner of the steps chooses."""

    def now(self) -> Any:  # noqa: ANN401
        """Wait in this thread."""
        raise NotImplementedError

    def __await__(self) -> Generator[Any, Any, Any]:
        raise NotImplementedError


def run(steps: Steps[T]) -> T:
    """Run steps in this thread."""
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
    """Run steps in the running event loop."""
    try:
        given = next(steps)
        while True:
            if hasattr(given, "__await__"):
                try:
                    given = await given
                except BaseException as error:
                    given = steps.throw(error)
                    continue
            given = steps.send(given)
    except StopIteration as done:
        value: T = done.value
        return value


async def run_to_the_end(steps: Steps[None]) -> None:
    """Like `run_awaiting`, but shielded from cancellation: no other caller runs these steps."""
    await to_the_end(run_awaiting(steps))


async def to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine, which goes on if its caller is cancelled."""
    from asyncio import shield  # here, because a limiter for threads needs no event loop

    return await shield(kept(start(work)))


def start(work: Coroutine[Any, Any, T]) -> Task[T]:
    """Start a task in the running event loop; raise `NoEventLoop` if there is none."""
    try:
        return running_loop().create_task(work)
    except NoEventLoop:
        work.close()  # else Python would warn that it was never awaited
        raise


unfinished: set[Task[Any]] = set()


def kept(task: Task[T]) -> Task[T]:
    """Keep a reference to a task until it ends, and return the task: the event loop has only weak references."""
    unfinished.add(task)
    task.add_done_callback(unfinished.discard)
    return task
