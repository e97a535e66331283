"""Gates that lease: permits are bought from the server in advance and spent at memory speed.

`stores/lease/book.py` says what is safe and how many to buy; here is how the questions travel. Whatever is not one
number of units of one key (costs by name, plans, several subjects, reservations) is asked for at the server, exactly.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Callable
from typing import Any, Final

from headgate.call import Cost, checked_cost, checked_key
from headgate.clock import SECOND, Clock
from headgate.engine import Decision
from headgate.engine.asking import checked_refund
from headgate.engine.modes import LEASED, TAKE, UP_TO, read_clock
from headgate.engine.purse import purses_for
from headgate.limit import Given, Limit
from headgate.stores.lease.book import LeaseBook
from headgate.stores.lease.buyer import Buyer
from headgate.stores.lease.terms import Lease
from headgate.stores.memory import MemoryStore
from headgate.stores.redis.gate import AsyncGate, Gate, Steps, _Asker
from headgate.stores.redis.plan import CENSUS, GIVE, Plan, instant
from headgate.stores.redis.wire import FAILURES

CENSUS_EVERY: Final = 5 * SECOND
"""Between two times at which a process says that it is there, and learns how many others are."""
RETURNED_AT_ONCE: Final = 4
"""Leases that one caller gives back on its way."""
_gates: weakref.WeakSet[_Leasing] = weakref.WeakSet()


class _Leasing(_Asker):
    """The steps of buying, spending and giving back."""

    def lease_by(self, terms: Lease, clock: Clock | None, slow: Any) -> None:  # noqa: ANN401
        """Lease on these terms from now on; `slow` answers what a lease cannot."""
        local = MemoryStore(clock=clock)
        self._purses = purses_for(local.gate("leases", self.limits)._core, slow)
        self._now: Callable[[], int] = lambda: read_clock(local.clock)
        self._book = LeaseBook(self.limits, terms, self._purses, self._now)
        self._census = Plan((Limit.parse("1/hour as nodes"),), self._names)
        self._me = os.urandom(16)
        self._counted_us = -CENSUS_EVERY
        _gates.add(self)

    def forget_leases(self) -> None:
        """Spend nothing that was bought before."""
        self._book.forget()

    def _after_fork(self) -> None:
        self._me = os.urandom(16)
        self._book.forget()  # they are the parent's

    def _exactly(self, key: str, units: int) -> Steps[Decision]:
        decision = yield from self._decide(self._own, key, (units,) * len(self.limits), TAKE)
        if not decision.degraded:
            self._book.saw(key, decision)
        return decision

    def _buy(self, key: str, units: int) -> Steps[Decision | None]:
        """Ask for permits. What came is in the books; None if somebody else is asking, or there was no answer."""
        sent = self._book.asking(key)
        if sent is None:
            return None
        plan = self._own
        costs = (units,) * len(self.limits)
        try:
            refused_since = self._denials.sent()
            reply, place = yield self._command(plan, UP_TO, key, plan.argument(costs))
            decision = plan.read(reply, place, key, costs, UP_TO)
        except BaseException as error:
            self._book.failed(key)
            if isinstance(error, FAILURES):
                return None
            raise
        self._book.granted(key, sent, instant(reply), decision)
        if not decision.allowed:
            self._denials.keep(self.limits, key, (1,) * len(costs), refused_since, decision)
        yield from self._count_nodes()
        return decision

    def _return(self, most: int | None = None) -> Steps[None]:
        """Give back what was not spent, once: a failure loses it."""
        due = self._book.unused(most)
        try:
            for key, units, marks in due:
                back = self._own.back((units,) * len(self.limits), marks)
                yield self._command(self._own, GIVE, (key,) * len(self.limits), back)
                self._denials.gave((key,))
        except FAILURES as error:
            self._fallback.regret(f"{type(error).__name__}: {error}")

    def _count_nodes(self) -> Steps[None]:
        """Say that this process is there, and learn how many are: who is cut off answers for that part of the limit."""
        now = self._now()
        if now - self._counted_us < CENSUS_EVERY:
            return
        self._counted_us = now
        try:
            reply, _ = yield self._command(self._census, CENSUS, "nodes", b"$16\r\n%b\r\n" % self._me)
        except FAILURES:
            return
        self._fallback.nodes = max(1, int(reply))

    def _paid_by_lease(self, charged: Decision | str, n: Cost | tuple[int, ...] | None) -> bool:
        """Whether a refund is of a leased decision; then it is done."""
        if isinstance(charged, str) or charged.answers[4] != LEASED:
            return False
        _, keys, units, marks = checked_refund(self.limits, charged, n)
        mark = marks[0]
        if mark is not None and any(units):
            self._book.refund(keys[0], min(units), mark[1])
        return True

    def _peeked(self, key: str, cost: Cost, limit: Given | None) -> Decision | None:
        """What a hit on the lease would answer."""
        if limit is not None or type(cost) is not int:
            return None
        decision = self._purses.spend(key, cost)
        if decision is not None:
            decision.claim_refund((cost,) * len(self.limits))
            self._book.refund(key, cost, decision.answers[5])
        return decision


class LeasedGate(Gate, _Leasing):
    """For threads: the caller who finds a lease low buys the next one; the others go on."""

    _buyer: Buyer | None = None

    def lease(self, terms: Lease, clock: Clock | None) -> None:
        """Lease on these terms from now on."""
        self.lease_by(terms, clock, self._slow)
        self.hit = self._purses.hit  # type: ignore[method-assign]
        if terms.thread:
            self._buyer = Buyer(terms.validity, self._buy_now, lambda: self._run(self._return()))

    def _slow(self, key: str, cost: Cost, limit: Given | None) -> Decision:
        if limit is not None or type(cost) is not int or cost == 0:
            return self._run(self._ask(key, cost, limit, TAKE))
        return self._run(self._take(checked_key(key), checked_cost(cost)))

    def _take(self, key: str, units: int) -> Steps[Decision]:
        book = self._book
        decision = book.spend(key, units)
        if decision is None:
            decision = self._denials.find(self.limits, key, (units,) * len(self.limits), TAKE)
        elif ahead := book.low(key):
            if self._buyer is not None:
                self._buyer.buy(key, ahead)
            else:
                yield from self._buy(key, ahead)
        if decision is None:
            wanted = book.wanted(key, units)
            if wanted > units:
                bought = yield from self._buy(key, wanted)
                if bought is not None and not bought.allowed and units == 1:
                    return bought
                decision = book.spend(key, units)
            if decision is None:
                decision = yield from self._exactly(key, units)
        if self._buyer is None:
            yield from self._return(RETURNED_AT_ONCE)
        return decision

    def _buy_now(self, key: str, units: int) -> None:
        self._run(self._buy(key, units))

    def peek(self, key: str, cost: Cost = 1, *, limit: Given | None = None) -> Decision:
        """What `hit` would answer; writes nothing."""
        decision = self._peeked(key, cost, limit)
        return super().peek(key, cost, limit=limit) if decision is None else decision

    def reserve(self, key: str, cost: Cost, wait: int, limit: Given | None = None) -> Decision:
        """Spend now what fits now or, where every limit lends, within so many microseconds."""
        decision = self._book.spend(key, cost) if limit is None and type(cost) is int else None
        return super().reserve(key, cost, wait, limit) if decision is None else decision

    def refund(self, charged: Decision | str, n: Cost | tuple[int, ...] | None = None) -> None:
        """Give back: to the lease, or to the server."""
        if not self._paid_by_lease(charged, n):
            super().refund(charged, n)

    def reset(self, key: str) -> None:
        """Make a key as new."""
        self._book.forget(checked_key(key))
        super().reset(key)

    def close(self) -> None:
        """Give back every lease."""
        if self._buyer is not None:
            self._buyer.close()
        self._run(self._return(-1))


class AsyncLeasedGate(AsyncGate, _Leasing):
    """For event loops: leases are bought in tasks, ahead of need where that can be foreseen."""

    def lease(self, terms: Lease, clock: Clock | None) -> None:
        """Lease on these terms from now on."""
        self.lease_by(terms, clock, self._slow)
        self._buying: dict[str, asyncio.Task[Any]] = {}
        self._waiting: dict[str, int] = {}
        self._sweeping: asyncio.TimerHandle | None = None

    async def hit(self, key: str, cost: Cost = 1, *, limit: Given | None = None) -> Decision:
        """Spend, if every limit allows."""
        answer: Any = self._purses.hit(key, cost, limit=limit)
        return answer if isinstance(answer, Decision) else await answer

    def _slow(self, key: str, cost: Cost, limit: Given | None) -> Any:  # noqa: ANN401
        if limit is not None or type(cost) is not int or cost == 0:
            return self._run(self._ask(key, cost, limit, TAKE))
        return self._take(checked_key(key), checked_cost(cost))

    async def _take(self, key: str, units: int) -> Decision:
        book = self._book
        decision = book.spend(key, units)
        if decision is not None:
            ahead = book.low(key)
            if ahead:
                self._start_buying(key, ahead)
            return decision
        decision = self._denials.find(self.limits, key, (units,) * len(self.limits), TAKE)
        if decision is not None:
            return decision
        buying = self._buying.get(key)
        if buying is None:
            wanted = book.wanted(key, units, self._waiting.pop(key, 0))
            if wanted > units:
                buying = self._start_buying(key, wanted)
        if buying is not None:
            self._waiting[key] = self._waiting.get(key, 0) + units
            await asyncio.wait([buying])
            decision = book.spend(key, units)
        return await self._run(self._exactly(key, units)) if decision is None else decision

    def _start_buying(self, key: str, units: int) -> asyncio.Task[Any]:
        loop = asyncio.get_running_loop()
        task = self._buying[key] = loop.create_task(self._bought(key, units))
        if self._sweeping is None:
            self._sweeping = loop.call_later(self._book.terms.validity, self._sweep)
        return task

    async def _bought(self, key: str, units: int) -> None:
        try:
            await self._run(self._buy(key, units))
        finally:
            self._buying.pop(key, None)
            self._waiting.pop(key, None)

    def _sweep(self) -> None:
        """Give back what has run out, and come again while there are leases."""
        loop = asyncio.get_running_loop()
        self._keep(loop.create_task(self._run(self._return())))
        self._sweeping = loop.call_later(self._book.terms.validity, self._sweep) if self._book.leases else None

    async def peek(self, key: str, cost: Cost = 1, *, limit: Given | None = None) -> Decision:
        """What `hit` would answer; writes nothing."""
        decision = self._peeked(key, cost, limit)
        return await super().peek(key, cost, limit=limit) if decision is None else decision

    async def reserve(self, key: str, cost: Cost, wait: int, limit: Given | None = None) -> Decision:
        """Spend now what fits now or, where every limit lends, within so many microseconds."""
        decision = self._book.spend(key, cost) if limit is None and type(cost) is int else None
        return await super().reserve(key, cost, wait, limit) if decision is None else decision

    async def refund(self, charged: Decision | str, n: Cost | tuple[int, ...] | None = None) -> None:
        """Give back: to the lease, or to the server."""
        if not self._paid_by_lease(charged, n):
            await super().refund(charged, n)

    async def reset(self, key: str) -> None:
        """Make a key as new."""
        self._book.forget(checked_key(key))
        await super().reset(key)

    async def aclose(self) -> None:
        """Give back every lease."""
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None
        for task in list(self._buying.values()):
            await asyncio.wait([task])
        await self._run(self._return(-1))


def _forget_parents() -> None:
    for gate in _gates:
        gate._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_parents)
