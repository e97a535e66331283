"""`AsyncLimiter`: the methods of `Limiter` as coroutines."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import Any, Self

from headgate.call import Cost, checked_key
from headgate.engine import Decision, pending
from headgate.limit import Given
from headgate.limiter.base import BaseLimiter
from headgate.limiter.limited import AsyncLimited, Key
from headgate.limiter.permit import AsyncPermit
from headgate.limiter.promises import Promise, depart
from headgate.limiter.reservation import AsyncReservation
from headgate.limiter.wait_steps import Ask, Depart, GiveBack, GiveUp, Look, Sleep, Step, Steps, Turn
from headgate.steps import run_awaiting
from headgate.stores import AsyncGate, AsyncStore, Store, in_flight_of
from headgate.waiting import checked_wait
from headgate.waiting.timers import Timers


class AsyncLimiter(BaseLimiter[Any], AsyncGate):
    """A `Limiter` for event loops; the methods that decide are coroutines."""

    def _use(self, store: Store) -> None:
        super()._use(store)
        self._timers = Timers(store.clock)
        self._undo = self._abandon
        self._waiting_by_key = self._queue.by_key
        hot = {} if self._awaits else self._hot
        self._hit_at_once = hot.get("hit")
        """The store's own `hit`, if it has one that is not awaited; else None."""
        self._release_at_once = hot.get("release")
        for name in ("acquire", "reserve"):
            method = getattr(type(self), name).__get__(self)
            setattr(self, name, pending(method, method, True))

    async def acquire(
        self, key: str, cost: Cost = 1, timeout: float | None = None, *, limit: Given | None = None
    ) -> Decision:
        """Wait until admitted, first come, first served. Refused at once if that would take longer than `timeout`.

        Also refused: a cost that can never fit, and a caller that comes when `max_waiting` callers wait already. A
        caller that is cancelled is not charged.
        """
        if timeout is None and limit is None and not self._queue.waiting and self._hit_at_once is not None:
            decision: Decision = self._hit_at_once(key, cost)
            if decision.allowed:
                return decision
        return await self._acquire(key, cost, timeout, limit)

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
        return AsyncReservation(self, await self._reserve(key, cost, self._promise(max_wait), limit), self._timers)

    async def refund(self, charged: Decision | str, n: Cost | None = None) -> None:
        """Give back the charge of a decision, or `n` units of it, at most once; or `n` units of a key."""
        await self._refund(charged, n)
        if self._waiting_by_key and not isinstance(charged, str):
            self._queue.wake(charged)

    async def release(self, decision: Decision) -> None:
        """Give back the units in flight of a decision, at most once; rates stay charged. A permit calls this itself."""
        await self._refund(decision, in_flight_of(decision))
        if self._waiting_by_key:
            self._queue.wake(decision)

    def limited(self, key: Key, cost: Cost = 1, *, limit: Given | None = None) -> AsyncLimited:
        """Return a decorator of `async def`: each call charges the key, or raises `RateLimited` if refused.

        The key may be a function of the arguments. Units in flight are held while the function runs.
        """
        return AsyncLimited(self, key, cost, limit)

    async def aclose(self) -> None:
        """Give back leases, and close the store if this limiter opened it; `async with` does this at its end."""
        await self._aclose_bound()
        if self._owned and isinstance(self._opened, AsyncStore):
            await self._opened.aclose()

    async def _acquire(self, key: str, cost: Cost, timeout: float | None, limit: Given | None) -> Decision:
        queue = self._queue
        due = queue.due(timeout)
        if checked_key(key) in queue.by_key:
            return await self._wait(key, cost, limit, queue.wait_turn(key, cost, due, _Waiter(cost)))
        wait = queue.longest if timeout is None else min(queue.longest, checked_wait(timeout))
        decision = await self._reserve(key, cost, wait, limit)
        return await self._wait(key, cost, limit, queue.finish(key, cost, due, decision, lambda: _Waiter(cost)))

    async def _permitted(self, key: str, cost: Cost, timeout: float | None, limit: Given | None) -> Decision:
        if timeout == 0 and not self._waiting_by_key and not self._awaits:
            return await self.hit(key, cost, limit=limit)
        return await self._acquire(key, cost, timeout, limit)

    async def _wait(self, key: str, cost: Cost, limit: Given | None, steps: Steps) -> Decision:
        """Run the steps of the queue in this event loop."""
        return await run_awaiting(steps, partial(self._do, key, cost, limit))

    async def _do(self, key: str, cost: Cost, limit: Given | None, step: Step) -> Decision | Promise | bool | None:
        match step:
            case Ask(wait_us):
                return await self._reserve(key, cost, wait_us, limit)
            case Look(units):
                return await self.peek(key, units or cost, limit=limit)
            case Sleep(at_us):
                await self._timers.here().wait_until(at_us)
            case Turn(_Waiter() as waiter, due_us):
                called = await (waiter.turn if due_us is None else self._timers.here().wait_for(waiter.turn, due_us))
                if waiter.turn.done():
                    waiter.turn = asyncio.get_running_loop().create_future()  # the waiter may be called again
                return called
            case GiveBack(decision):
                await self.refund(decision)
            case GiveUp(promise):
                await self._give_up(promise)
            case Depart(promise):
                return await depart(self._timers.here(), promise, self._give_up)
        return None

    async def _give_up(self, promise: Promise) -> None:
        promise.given_up = True
        if self._awaits:
            await self._finish(self._give_back(promise))
        else:
            for freed in self._queue.promises.free(promise):
                await self._refund(freed.decision)

    async def _give_back(self, promise: Promise) -> None:
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
        if not self._awaits:
            return await work  # it never suspends, so it cannot be cancelled
        task = asyncio.get_running_loop().create_task(work)
        self._keep(task)
        return await asyncio.shield(task)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class _Waiter:
    """A waiting task."""

    __slots__ = ("cost", "turn")

    def __init__(self, cost: Cost) -> None:
        self.cost = cost
        self.turn: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def call(self) -> None:
        loop = self.turn.get_loop()
        if loop is _running_loop():
            self._tell()
        elif not loop.is_closed():
            loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        if not self.turn.done():
            self.turn.set_result(True)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
