"""Streams whose chunks wait until their length is acquired."""

from __future__ import annotations

from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Iterator,
    Sized,
)
from typing import TypeVar

from headgate.engine import Decision
from headgate.errors import InvalidCall, RateLimited
from headgate.limit import Given, Limit, as_limits

Chunk = TypeVar("Chunk", bound=Sized)


def largest_part(chunks: object, limits: tuple[Limit, ...], limit: Given | None) -> int:
    """Return the most units that can be acquired at once; raise `InvalidCall` if a stream cannot be paced."""
    if isinstance(chunks, str | bytes | bytearray | memoryview):
        raise InvalidCall(f"a stream needs chunks, as in [body] or a generator; got one {type(chunks).__name__}")
    limits = limits if limit is None else as_limits(limit)
    if any(each.in_flight for each in limits):
        raise InvalidCall("a limit in flight cannot pace a stream: use limits per time, as in 1_000_000/second")
    most = min(each.burst for each in limits)
    if not most:
        raise InvalidCall("a limit of 0 lets no chunk pass")
    return most


def parts_of(size: int, most: int) -> list[int]:
    """Return the size in parts of at most this many: 2500 is 1000, 1000 and 500."""
    return [most] * (size // most) + [size % most] * (size % most > 0)


def paced(chunks: Iterable[Chunk], pay: Callable[[int], list[Decision]]) -> Iterator[Chunk]:
    """Yield each chunk after it is paid for. A generator ends with its reader, so that its `finally` runs then."""
    try:
        for chunk in chunks:
            _check(pay(len(chunk)))
            yield chunk
    finally:
        if isinstance(chunks, Generator):
            chunks.close()


async def paced_awaiting(
    chunks: Iterable[Chunk] | AsyncIterable[Chunk], pay: Callable[[int], Awaitable[list[Decision]]]
) -> AsyncIterator[Chunk]:
    """Like `paced`, in an event loop."""
    try:
        if isinstance(chunks, AsyncIterable):
            async for chunk in chunks:
                _check(await pay(len(chunk)))
                yield chunk
        else:
            for chunk in chunks:
                _check(await pay(len(chunk)))
                yield chunk
    finally:
        if isinstance(chunks, AsyncGenerator):
            await chunks.aclose()
        elif isinstance(chunks, Generator):
            chunks.close()


def _check(paid: list[Decision]) -> None:
    for decision in paid:
        if not decision.allowed:
            raise RateLimited(decision)
