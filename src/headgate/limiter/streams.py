"""Streams whose chunks wait until their length is acquired."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sized
from typing import TypeVar

from headgate.engine import Decision
from headgate.errors import InvalidCall, RateLimited
from headgate.limit import Given, Limit, as_limits

Chunk = TypeVar("Chunk", bound=Sized)


def largest_part(limits: tuple[Limit, ...], limit: Given | None) -> int:
    """Return the most units that can be acquired at once; raise `InvalidCall` if a stream cannot be paced."""
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
    """Yield each chunk after it is paid for."""
    for chunk in chunks:
        _check(pay(len(chunk)))
        yield chunk


async def paced_awaiting(
    chunks: Iterable[Chunk] | AsyncIterable[Chunk], pay: Callable[[int], Awaitable[list[Decision]]]
) -> AsyncIterator[Chunk]:
    """Yield each chunk after it is paid for, in an event loop."""
    if isinstance(chunks, AsyncIterable):
        async for chunk in chunks:
            _check(await pay(len(chunk)))
            yield chunk
    else:
        for chunk in chunks:
            _check(await pay(len(chunk)))
            yield chunk


def _check(paid: list[Decision]) -> None:
    for decision in paid:
        if not decision.allowed:
            raise RateLimited(decision)
