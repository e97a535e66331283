"""`AsyncLimiter`: the methods of `Limiter` as coroutines."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Coroutine, Iterable
from typing import Any, Self

from headgate.call import Call, Cost
from headgate.engine import Decision
from headgate.limit import Given
from headgate.limiter.base import BaseLimiter
from headgate.limiter.caller import Caller, Order, order_of
from headgate.limiter.limited import AsyncLimited, Charge, CostOf, Key, check_key
from headgate.limiter.permit import AsyncPermit
from headgate.limiter.promises import Promise, depart
from headgate.limiter.reservation import AsyncReservation
from headgate.limiter.several import acquire_all
from headgate.limiter.streams import Chunk, largest_part, paced_awaiting, parts_of
from headgate.steps import run_awaiting, to_the_end
from headgate.stores import AsyncGate, AsyncStore, Store
from headgate.waiting.timers import LoopTimers, Timers


class AsyncLimiter(BaseLimiter[Any, Awaitable[Decision]], AsyncGate):
    """A `Limiter` for event loops; the methods that decide are coroutines."""

    def _use(self, store: Store) -> None:
        super()._use(store)
        self._timers = Timers(store.clock)
        self._undo = self._abandon
        self._waiting_by_key = self._queue.by_key
        hot = {} if self._awaits else self._hot
        self._hit_at_once = hot.get("hit")
        """The store's own `hit`, if it has one that is not awaited; else None."""
        self._hit_or_none = None if self._awaits else getattr(self._bound, "hit_or_none", None)
        """The same, for callers that wait if they are refused."""
        self._release_at_once = hot.get("release")
        self._carry({name: self._pending(name) for name in ("acquire", "acquire_all", "reserve")})

    async def acquire(
        self,
        key: str,
        cost: Cost = 1,
        timeout: float | None = None,
        *,
        limit: Given | None = None,
        priority: int = 0,
        fair_by: str | None = None,
        weight: float = 1,
    ) -> Decision:
        """Wait until admitted, first come, first served. Refused at once if that would take longer than `timeout`.

        Also refused: a cost that can never fit, and a caller that comes when `max_waiting` callers wait already. A
        caller that is cancelled is not charged. With a `priority`, the highest goes first; with `fair_by`, callers
        share the limit by their `weight`.
        """
        order = None if not priority and fair_by is None and weight == 1 else order_of(priority, fair_by, weight)
        if timeout is None and limit is None and not self._queue.waiting and self._hit_or_none is not None:
            decision: Decision | None = self._hit_or_none(key, cost)
            if decision is not None:
                return decision
        return await self._acquire(key, cost, timeout, limit, order)

    async def acquire_all(self, *calls: Call, timeout: float | None = None) -> Decision:
        """Wait like `acquire`, over several limits and keys at once, as `decide` does: all are charged or none is."""
        return await run_awaiting(acquire_all(self._queue, _Task(self, "", {}, None).about(calls), timeout))

    def stream(
        self, key: str, chunks: Iterable[Chunk] | AsyncIterable[Chunk], *, limit: Given | None = None
    ) -> AsyncIterator[Chunk]:
        """Yield the same chunks, each after its length was acquired: `async for chunk in limiter.stream(user, body)`.

        A chunk above the burst waits for all of its parts. A caller that may not wait raises `RateLimited`.
        """
        most = largest_part(chunks, self.limits, limit)

        async def pay(size: int) -> list[Decision]:
            return [await self.acquire(key, part, limit=limit) for part in parts_of(size, most)]

        return paced_awaiting(chunks, pay)

    def permit(self, key: str, cost: Cost = 1, timeout: float | None = 0, *, limit: Given | None = None) -> AsyncPermit:
        """Charge the key, and hold the units in flight until the permit ends: `async with limiter.permit("k"):`.

        A permit may also be awaited. It waits at most `timeout` seconds, first come, first served; None: no bound.
        """
        return AsyncPermit(self, key, cost, timeout, limit)

    async def reserve(
        self, key: str, cost: Cost = 1, max_wait: float | None = None, *, limit: Given | None = None
    ) -> AsyncReservation:
        """Charge now a cost that may be used after a delay of at most `max_wait` seconds (default: an hour).

        Write `async with limiter.reserve("k"):`, or await it first. Windows, logs and blocks cannot promise a delay:
        they reserve a cost that fits now.
        """
        decision = await self._reserve(key, cost, self._promise(max_wait), limit)
        return AsyncReservation(self, self._count(decision, False), self._timers)

    def limited(
        self, key: Key, cost: CostOf = 1, *, timeout: float | None = 0, limit: Given | None = None
    ) -> AsyncLimited:
        """Return a decorator of `async def`: each call charges the key, or raises `RateLimited` if refused.

        Key and cost may be functions of the arguments. With a `timeout`, a call waits at most that many seconds, as in
        `acquire`; None: no bound. Units in flight are held while the function runs.
        """
        return AsyncLimited(self, Charge(check_key(key, sys._getframe(1)), cost, timeout, limit))

    async def aclose(self) -> None:
        """Give back leases, and close the store if this limiter opened it; `async with` does this at its end."""
        if hasattr(self._bound, "aclose"):
            await self._bound.aclose()
        if self._owned and isinstance(self._opened, AsyncStore):
            await self._opened.aclose()

    def _acquire(
        self, key: str, cost: Cost, timeout: float | None, limit: Given | None, order: Order | None = None
    ) -> Awaitable[Decision]:
        return run_awaiting(self._queue.acquire(_Task(self, key, cost, limit, order), timeout))

    async def _permitted(self, key: str, cost: Cost, timeout: float | None, limit: Given | None) -> Decision:
        if timeout == 0 and not self._waiting_by_key and not self._awaits:
            return await self.hit(key, cost, limit=limit)
        return await self._acquire(key, cost, timeout, limit)

    async def _give_up(self, promise: Promise) -> None:
        promise.given_up = True
        await self._finish(self._give_back(promise))

    async def _give_back(self, promise: Promise) -> None:
        if self._awaits:
            await asyncio.sleep(0)  # callers answered together may give up together: the last goes back first
        for freed in self._queue.promises.free(promise):
            await self._refund(freed.decision)

    async def _abandon(self, decision: Decision) -> None:
        """Give back a decision that was made after its caller was cancelled."""
        if decision.allowed and decision.retry_us:
            await self._give_up(self._queue.promise(decision))
        else:
            await self._refund(decision)

    async def _finish(self, work: Coroutine[Any, Any, None]) -> None:
        """Finish this work even if the caller is cancelled meanwhile."""
        # Work that need not await the store never suspends, so it cannot be cancelled.
        await (to_the_end(work) if self._awaits else work)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class _Task(Caller):
    """A caller in an event loop."""

    __slots__ = ("_turn",)

    def ask(self, wait_us: int) -> Any:  # noqa: ANN401
        """Reserve nothing for later where no caller can wait for it, as under trio."""
        return super().ask(wait_us if asyncio._get_running_loop() is not None else 0)

    async def depart(self, promise: Promise) -> Promise:
        return await depart(self._timers, promise, self.give_up)

    def sleep_until(self, at_us: int) -> Coroutine[Any, Any, None]:
        return self._timers.wait_until(at_us)

    def queue_up(self) -> None:
        self._turn: asyncio.Future[bool] = self._timers.loop.create_future()

    async def wait_for_turn(self, due_us: int | None) -> bool:
        called = await (self._turn if due_us is None else self._timers.wait_for(self._turn, due_us))
        if self._turn.done():
            self.queue_up()  # the caller may be called again
        return called

    def call(self) -> None:
        loop = self._turn.get_loop()
        if loop is asyncio._get_running_loop():
            self._tell()
        elif not loop.is_closed():
            loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        if not self._turn.done():
            self._turn.set_result(True)

    @property
    def _timers(self) -> LoopTimers:
        timers: Timers = self._limiter._timers
        return timers.here()
