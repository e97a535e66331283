"""`AsyncShaper`: the methods of `Shaper` as coroutines."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable
from typing import Any, Self, TypeVar

from headgate.engine import Decision, pending
from headgate.limiter import Promise, depart
from headgate.shaper.base import EVERYTHING, Departure, Shaping
from headgate.shaper.pump import AsyncPump
from headgate.steps import to_the_end
from headgate.stores import AsyncGate, AsyncStore, Store
from headgate.waiting.timers import LoopTimers, Timers
from headgate.wording import explained

T = TypeVar("T")
R = TypeVar("R")


class AsyncShaper(Shaping):
    """A `Shaper` for event loops."""

    def _use(self, store: Store) -> None:
        super()._use(store)
        self._timers = Timers(store.clock)
        self._awaits = isinstance(store, AsyncStore)
        self._gate = AsyncGate(store, self.namespace, self.limits, self.on_error)
        self._gate._undo = self._abandon
        methods = [type(self)._own[name].__get__(self) for name in ("enter", "shape")]
        self._carry({method.__name__: pending(method, method, True) for method in methods})

    async def enter(self, key: str, cost: int = 1) -> Departure:
        """Take a place in the queue without waiting; false if the queue is full. The caller waits by itself."""
        # A reservation with no wait is a hit that is given back if the caller is cancelled.
        return self._departure(await self._gate._reserve(key, cost, 0))

    async def shape(self, key: str, cost: int = 1, timeout: float | None = None) -> Decision:
        """Wait until the departure time, never less.

        Refused at once if the queue is full, or if the wait would be longer than `timeout` seconds. When a caller is
        cancelled, the callers behind it with the same key and cost move up.
        """
        if timeout is not None:
            refused = self._too_late(await self._gate.peek(key, 0), key, cost, timeout)
            if refused is not None:
                return refused
        departure = await self.enter(key, cost)
        if not departure.delay_us:
            return departure.decision
        promise = self._promises.add(departure.decision, departure.at_us)
        kept = await depart(self.timers(), promise, self._give_up)
        self._promises.left(kept)
        return kept.decision

    async def _give_up(self, promise: Promise) -> None:
        promise.given_up = True
        work = self._give_back(promise)
        await (to_the_end(work) if self._awaits else work)

    async def _give_back(self, promise: Promise) -> None:
        if self._awaits:
            await asyncio.sleep(0)  # callers may give up together: the last place goes back first
        for place in self._freed(promise):
            await self._gate.refund(place)

    async def _abandon(self, decision: Decision) -> None:
        """Give back the place of a caller that was cancelled while it asked, unless its time has come."""
        departure = self._departure(decision)
        if departure.delay_us:
            await self._give_up(self._promises.add(decision, departure.at_us))

    def timers(self) -> LoopTimers:
        """Return the timers of the running event loop."""
        return self._timers.here()

    @explained
    def drain(self, source: AsyncIterable[T] | Iterable[T], key: str = EVERYTHING) -> AsyncPump[T]:
        """Return a pump: the items of a source at the constant rate. It reads ahead while the queue has room."""
        return AsyncPump(self, source, key)

    async def map(
        self, function: Callable[[T], Awaitable[R]], source: AsyncIterable[T] | Iterable[T], key: str = EVERYTHING
    ) -> AsyncIterator[R]:
        """Start a coroutine for each item of a source, at the constant rate; yield the results in the items' order.

        Calls may overlap: a slow call does not delay the next one, unless as many calls run as the queue has room for.
        Closing the iterator cancels the calls that still run.
        """
        running: deque[asyncio.Future[R]] = deque()
        coming: asyncio.Future[T] | None = None
        try:
            async with self.drain(source, key) as pump:
                over = False
                while not over or running:
                    if coming is None and not over and len(running) < self.limit.burst:
                        coming = asyncio.ensure_future(anext(pump))
                    first: list[asyncio.Future[Any]] = [*([coming] if coming is not None else []), *list(running)[:1]]
                    await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
                    if coming is not None and coming.done():
                        try:
                            running.append(asyncio.ensure_future(function(coming.result())))
                        except StopAsyncIteration:
                            over = True
                        coming = None
                    while running and running[0].done():
                        yield running.popleft().result()
        finally:
            left: list[asyncio.Future[Any]] = [*running, *([coming] if coming is not None else [])]
            for each in left:
                each.cancel()
            await asyncio.gather(*left, return_exceptions=True)

    async def aclose(self) -> None:
        """Close the store if this shaper opened it."""
        if self._owned and isinstance(self._opened, AsyncStore):
            await self._opened.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
