"""Clients of a service: one way to ask for every library, in threads and in event loops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, NamedTuple, Protocol

from headgate.testing import ManualClock
from tests.support.adapters.loops import in_loop

STEP = 0.1
"""The virtual seconds in a real millisecond, for clients in an event loop; threads move the clock themselves."""


class Got(NamedTuple):
    """A response. Names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


Body = bytes | list[bytes]
"""A list is sent by an iterator, which can be read once."""


class Client(Protocol):
    """A client with one connection, whose requests go through a budget."""

    def ask(
        self, method: str = "GET", path: str = "/", headers: Mapping[str, str] | None = None, body: Body = b""
    ) -> Got:
        """Send a request; errors of the library are raised as they are."""


class AwaitedClient:
    """A client in an event loop, in a thread of its own."""

    def __init__(self, run: Callable[..., Any], send: Callable[..., Coroutine[Any, Any, Got]]) -> None:
        self._run, self._send = run, send

    def ask(
        self, method: str = "GET", path: str = "/", headers: Mapping[str, str] | None = None, body: Body = b""
    ) -> Got:
        got: Got = self._run(self._send(method, path, dict(headers or {}), body))
        return got

    def begin(self) -> asyncio.Task[Got]:
        """Begin a request, and return when it waits."""

        async def begun() -> asyncio.Task[Got]:
            task = asyncio.create_task(self._send("GET", "/", {}, b""))
            await asyncio.wait({task}, timeout=0.05)
            return task

        task: asyncio.Task[Got] = self._run(begun())
        return task

    def cancel(self, task: asyncio.Task[Got]) -> None:
        """Cancel a request, and wait for its end."""

        async def cancelled() -> None:
            task.cancel()
            await asyncio.wait({task})

        self._run(cancelled())

    def result(self, task: asyncio.Task[Got]) -> Got:
        """Wait for the end of a request."""

        async def ended() -> Got:
            return await asyncio.wait_for(task, 10)

        got: Got = self._run(ended())
        return got


@contextmanager
def awaited(
    opened: Callable[[], AbstractAsyncContextManager[Callable[..., Coroutine[Any, Any, Got]]]],
    clock: ManualClock,
    moves: bool,
) -> Iterator[AwaitedClient]:
    """A client in an event loop; the clock moves by itself, unless the test moves it."""
    with in_loop() as run:
        context = run(_entered(opened))
        mover = run(_begun(_move(clock))) if moves else None
        try:
            yield AwaitedClient(run, context[1])
        finally:
            if mover is not None:
                run(_stopped(mover))
            run(context[0].__aexit__(None, None, None))


async def _entered(opened: Callable[[], Any]) -> tuple[Any, Any]:
    context = opened()
    return context, await context.__aenter__()


async def _begun(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    return asyncio.create_task(work)


async def _stopped(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait({task})


async def _move(clock: ManualClock) -> None:
    for _ in range(60_000):
        await asyncio.sleep(0.001)
        clock.advance(STEP)


async def streamed(pieces: list[bytes]) -> AsyncIterator[bytes]:
    """A body that can be read once."""
    for piece in pieces:
        yield piece


def lowered(headers: Any) -> dict[str, str]:
    """Header fields by their names in lower case."""
    return {str(name).lower(): value for name, value in headers}
