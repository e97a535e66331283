"""Gates that lease: tokens are bought from the server in advance and spent at memory speed.

`stores/leases/ledger.py` says what is safe and how many to buy, `leasing.py` what is asked; here is how the questions
travel. Whatever is not one number of units of one key (costs by name, plans, several subjects, reservations) is asked
for at the server, exactly.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, Final

from headgate.call import Cost, checked_cost, checked_key
from headgate.clock import Clock
from headgate.engine import Decision
from headgate.engine.modes import TAKE
from headgate.limit import Given
from headgate.stores.leases.returns import MOMENT, returns
from headgate.stores.leases.terms import Lease
from headgate.stores.redis.connect import FAILURES
from headgate.stores.redis.cross_slot import Steps
from headgate.stores.redis.gate import Gate
from headgate.stores.redis.gate_async import AsyncGate
from headgate.stores.redis.leasing import Leasing

RETURNED_AT_ONCE: Final = 4
"""Leases that one caller gives back on its way."""


class LeasedGate(Gate, Leasing):
    """For threads: the caller who finds a lease low buys the next one; the others go on."""

    def lease(self, terms: Lease, clock: Clock | None) -> None:
        """Lease on these terms from now on."""
        self.lease_by(terms, clock, self._slow)
        self.hit = self._tokens.hit  # type: ignore[method-assign]
        # A clock that is moved by hand tells when it was: then no thread has to wait for it.
        watch = getattr(clock, "watch", None)
        self._by_hand = watch is not None
        if watch is not None:
            watch(self.return_due)

    def return_due(self) -> None:
        """Give back what has run out."""
        self._run(self._return())

    def _slow(self, key: str, cost: Cost, limit: Given | None) -> Decision:
        if limit is not None or type(cost) is not int or cost == 0:
            return self._run(self._ask(key, cost, limit, TAKE))
        return self._run(self._take(checked_key(key), checked_cost(cost)))

    def _take(self, key: str, units: int) -> Steps[Decision]:
        decision = self._ledger.spend(key, units)
        if decision is not None:
            ahead = self._ledger.low(key)
            if ahead:
                with suppress(*FAILURES):
                    yield from self._refilled(key, ahead)
            return decision
        decision = self._refusals.find(self.limits, key, (units,) * len(self.limits), TAKE)
        return (yield from self._ask_for(key, units)) if decision is None else decision

    def _ask_for(self, key: str, units: int) -> Steps[Decision]:
        """At the server: for these and some more, or for just these."""
        wanted = self._ledger.wanted(key, units)
        if wanted > units:
            try:
                bought = yield from self._refilled(key, wanted)
            except FAILURES as error:
                return self._degraded(key, units, error)
            if bought is not None and not bought.allowed and units == 1:
                return bought
            decision = self._ledger.spend(key, units)
            if decision is not None:
                return decision
        return (yield from self._exactly(key, units))

    def _refilled(self, key: str, units: int) -> Steps[Decision | None]:
        decision = yield from self._refill(key, units)
        if decision is not None and decision.allowed:
            self._look_after()
        return decision

    def _look_after(self) -> None:
        """See to it that what is not spent is given back, also if nobody asks any more."""
        if not self._by_hand:
            returns.look_after(self)

    def peek(self, key: str, cost: Cost = 1, *, limit: Given | None = None) -> Decision:
        """What `hit` would answer; writes nothing."""
        return self._run(self._peek(key, cost, limit))

    def reserve(self, key: str, cost: Cost, wait: int, limit: Given | None = None) -> Decision:
        """Spend now what fits now or, where every limit lends, within so many microseconds."""
        decision = self._spent(key, cost, limit)
        return super().reserve(key, cost, wait, limit) if decision is None else decision

    def refund(self, charged: Decision | str, n: Cost | tuple[int, ...] | None = None) -> None:
        """Give back: to the lease, or to the server."""
        if self._paid_by_lease(charged, n):
            self._run(self._return(RETURNED_AT_ONCE))
        else:
            super().refund(charged, n)

    def reset(self, key: str) -> None:
        """Make a key as new."""
        self._ledger.forget(checked_key(key))
        try:
            super().reset(key)
        finally:
            self._ledger.forget(key)  # what was bought while this was on its way

    def close(self) -> None:
        """Give back every lease."""
        self._run(self._return(-1))
        returns.leave(self)


class AsyncLeasedGate(AsyncGate, Leasing):
    """For event loops: leases are bought in tasks, ahead of need where that can be foreseen."""

    def lease(self, terms: Lease, clock: Clock | None) -> None:
        """Lease on these terms from now on."""
        self.lease_by(terms, clock, self._slow)
        self._refilling: dict[str, asyncio.Task[BaseException | None]] = {}
        self._sweeping: asyncio.TimerHandle | None = None
        self._sweeper: asyncio.AbstractEventLoop

    def _after_fork(self) -> None:
        super()._after_fork()
        self._abandoned = self._refilling, self._kept  # kept, since they belong to the parent's event loop
        self._refilling, self._kept, self._sweeping = {}, set(), None

    async def hit(self, key: str, cost: Cost = 1, *, limit: Given | None = None) -> Decision:
        """Spend, if every limit allows."""
        answer: Any = self._tokens.hit(key, cost, limit=limit)
        return answer if isinstance(answer, Decision) else await answer

    def _slow(self, key: str, cost: Cost, limit: Given | None) -> Any:  # noqa: ANN401
        if limit is not None or type(cost) is not int or cost == 0:
            return self._run(self._ask(key, cost, limit, TAKE))
        return self._take(checked_key(key), checked_cost(cost))

    async def _take(self, key: str, units: int) -> Decision:
        ledger = self._ledger
        decision = ledger.spend(key, units)
        if decision is not None:
            ahead = ledger.low(key)
            if ahead and self._refill_here(key) is None:
                self._start_refill(key, ahead)
            return decision
        decision = self._refusals.find(self.limits, key, (units,) * len(self.limits), TAKE)
        if decision is not None:
            return decision
        refilling = self._refill_here(key)
        if refilling is None:
            wanted = ledger.wanted(key, units)
            if wanted > units:
                refilling = self._start_refill(key, wanted)
        if refilling is not None:
            await asyncio.wait([refilling])
            decision = ledger.spend(key, units)
            error = None if refilling.cancelled() else refilling.result()
            if decision is None and error is not None:
                return self._degraded(key, units, error)
        return await self._run(self._exactly(key, units)) if decision is None else decision

    def _refill_here(self, key: str) -> asyncio.Task[BaseException | None] | None:
        """The purchase that is under way in this event loop: one in another cannot be waited for."""
        task = self._refilling.get(key)
        return task if task is not None and task.get_loop() is asyncio.get_running_loop() else None

    def _start_refill(self, key: str, units: int) -> asyncio.Task[BaseException | None]:
        loop = asyncio.get_running_loop()
        task = self._refilling[key] = loop.create_task(self._refilled(key, units))
        return task

    async def _refilled(self, key: str, units: int) -> BaseException | None:
        """Buy; what came of it is in the ledgers, or else it failed."""
        try:
            await self._run(self._refill(key, units))
        except FAILURES as error:
            return error
        finally:
            if self._refilling.get(key) is asyncio.current_task():
                del self._refilling[key]
        loop = asyncio.get_running_loop()
        if self._sweeping is None or (self._sweeper is not loop and not self._sweeper.is_running()):
            self._sweep_later(loop)
        return None

    def _sweep_later(self, loop: asyncio.AbstractEventLoop) -> None:
        pause = self.next_return()
        if pause is not None:
            self._sweeping, self._sweeper = loop.call_later(max(MOMENT, pause), self._sweep), loop

    def _sweep(self) -> None:
        """Give back what has run out, and come again while there are leases."""
        loop = asyncio.get_running_loop()
        if self._sweeper is loop:
            self._keep(loop.create_task(self._run(self._return())))
            self._sweeping = None
            self._sweep_later(loop)

    async def peek(self, key: str, cost: Cost = 1, *, limit: Given | None = None) -> Decision:
        """What `hit` would answer; writes nothing."""
        return await self._run(self._peek(key, cost, limit))

    async def reserve(self, key: str, cost: Cost, wait: int, limit: Given | None = None) -> Decision:
        """Spend now what fits now or, where every limit lends, within so many microseconds."""
        decision = self._spent(key, cost, limit)
        return await super().reserve(key, cost, wait, limit) if decision is None else decision

    async def refund(self, charged: Decision | str, n: Cost | tuple[int, ...] | None = None) -> None:
        """Give back: to the lease, or to the server."""
        if self._paid_by_lease(charged, n):
            await self._run(self._return(RETURNED_AT_ONCE))
        else:
            await super().refund(charged, n)

    async def reset(self, key: str) -> None:
        """Make a key as new."""
        self._ledger.forget(checked_key(key))
        try:
            await super().reset(key)
        finally:
            self._ledger.forget(key)  # what was bought while this was on its way

    async def aclose(self) -> None:
        """Give back every lease."""
        loop = asyncio.get_running_loop()
        if self._sweeping is not None and self._sweeper is loop:
            self._sweeping.cancel()
            self._sweeping = None
        under_way = [task for task in (*self._refilling.values(), *self._kept) if task.get_loop() is loop]
        if under_way:
            await asyncio.wait(under_way)
        await self._run(self._return(-1))
