"""Pumps: deliver the items of a source at a constant rate, and lose none of them."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from typing import TYPE_CHECKING, Final, Generic, Self, TypeVar

from headgate.steps import running_loop
from headgate.waiting import sleep_until

if TYPE_CHECKING:
    from headgate.shaper.async_ import AsyncShaper
    from headgate.shaper.sync import Shaper

T = TypeVar("T")
BREATHE: Final = 64
"""A pump yields to the event loop after this many items of a plain iterable."""


class _Counts(Generic[T]):
    """The counts and the queue of both pumps."""

    def __init__(self) -> None:
        self.accepted = 0
        """The number of items that got a departure time."""
        self.delivered = 0
        """The number of accepted items that have left."""
        self._queue: deque[tuple[int, T]] = deque()
        self._held: list[T] = []
        self._over = False

    def rest(self) -> list[T]:
        """Return the items that were read from the source and have not left: a caller that stops early loses none."""
        return [item for _, item in self._queue] + self._held

    def _accept(self, at_us: int, item: T) -> None:
        self._queue.append((at_us, item))
        self._held.clear()
        self.accepted += 1


class Pump(_Counts[T]):
    """The items of a source, each at its departure time; it reads the next item when the last one has left."""

    def __init__(self, shaper: Shaper, source: Iterable[T], key: str) -> None:
        super().__init__()
        self._shaper = shaper
        self._source = iter(source)
        self._key = key
        self._clock = shaper.store.clock
        self._turn = threading.Lock()
        """Held by the thread that takes the next item: items leave one after the other, and each of them once."""

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        with self._turn:
            if not self._queue:
                self._take_one()
            at_us, item = self._queue[0]
            sleep_until(self._clock, at_us)
            self._queue.popleft()
            self.delivered += 1
            return item

    def stop(self) -> None:
        """Read no more items from the source; an accepted item still leaves at its time."""
        self._over = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _take_one(self) -> None:
        """Read the next item, and hold it until there is room."""
        if self._over:
            raise StopIteration
        if not self._held:
            try:
                self._held.append(next(self._source))
            except BaseException:
                self._over = True
                raise
        while not (departure := self._shaper.enter(self._key)):
            sleep_until(self._clock, self._clock.now_us() + departure.decision.retry_us)
        self._accept(departure.at_us, self._held[0])


class AsyncPump(_Counts[T]):
    """The items of a source, each at its departure time: `async with shaper.drain(source) as pump:`."""

    def __init__(self, shaper: AsyncShaper, source: AsyncIterable[T] | Iterable[T], key: str) -> None:
        super().__init__()
        self._room = shaper.limit.burst
        self._error: BaseException | None = None
        self._shaper = shaper
        self._source = source
        self._key = key
        self._clock = shaper.store.clock
        self._reader: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._turn = asyncio.Lock()
        """Held by the task that takes the next item: items leave one after the other, and each of them once."""

    def __aiter__(self) -> AsyncIterator[T]:
        return self

    async def __anext__(self) -> T:
        async with self._turn:
            return await self._next()

    async def _next(self) -> T:
        if self._reader is None and not self._over:
            self._reader = running_loop().create_task(self._read())
        while not self._queue:
            if self._over:
                if self._error is not None:
                    error, self._error = self._error, None
                    raise error
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
        at_us, item = self._queue[0]
        await self._shaper.timers().wait_until(at_us)
        self._queue.popleft()
        self.delivered += 1
        self._changed.set()
        return item

    async def stop(self) -> None:
        """Read no more items from the source; accepted items still leave at their times."""
        self._over = True
        self._changed.set()
        if self._reader is not None and self._reader is not asyncio.current_task():
            self._reader.cancel()
            await asyncio.wait([self._reader])

    async def aclose(self) -> None:
        """Stop; `rest` returns the items that have not left."""
        await self.stop()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def _read(self) -> None:
        """Read the source ahead while the queue has room."""
        try:
            async for item in _each(self._source):
                self._held.append(item)
                await self._offer(item)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._error = error
        finally:
            self._over = True
            self._changed.set()

    async def _offer(self, item: T) -> None:
        while len(self._queue) >= self._room:  # the consumer is slower than the rate
            self._changed.clear()
            await self._changed.wait()
        while not (departure := await self._shaper.enter(self._key)):
            await self._shaper.timers().wait_until(self._clock.now_us() + departure.decision.retry_us)
        self._accept(departure.at_us, item)
        self._changed.set()


async def _each(source: AsyncIterable[T] | Iterable[T]) -> AsyncIterator[T]:
    """Yield the items of either kind of source; a plain one yields to the event loop now and then."""
    if isinstance(source, AsyncIterable):
        async for item in source:
            yield item
        return
    for number, item in enumerate(source):
        if number % BREATHE == 0:
            await asyncio.sleep(0)
        yield item
