"""Bound limits that lease: tokens are charged at the server in advance and spent in memory.

`stores/leases/ledger.py` decides which tokens may be spent and how many to ask for, `leasing.py` builds the commands,
and this file sends them. The server itself decides every call that is not one number of units of one key (costs by
name that differ, plans, several keys).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

from headgate.call import Cost
from headgate.clock import Clock
from headgate.engine import PEEK, RESERVE, TAKE, UP_TO, Decision, Tally
from headgate.limit import Given
from headgate.steps import running_loop
from headgate.stores.contract import Costs, Keys, Marks
from headgate.stores.leases.grants import Reply
from headgate.stores.leases.returns import MOMENT, returns
from headgate.stores.leases.terms import Lease
from headgate.stores.redis.bound import BoundLimits, failed
from headgate.stores.redis.bound_async import AsyncBoundLimits
from headgate.stores.redis.compiled import Command
from headgate.stores.redis.connect import FAILURES
from headgate.stores.redis.cross_slot import Steps
from headgate.stores.redis.leasing import Leasing

RETURNED_AT_ONCE: Final = 4
"""The most leases that one refund also gives back."""
ROUNDS: Final = 3
"""The most questions of other callers whose answers a caller waits for before it asks for itself."""
LONGEST_WAIT: Final = 5.0
"""The most seconds that a thread waits for the answer to the question of another thread."""


Refill = asyncio.Task[Decision | BaseException | None]
"""A question for tokens: its answer, or the failure."""


class LeasedLimits(BoundLimits, Leasing):
    """Leased limits for threads: the caller that finds a lease low refills it; the others go on."""

    def lease(self, terms: Lease, clock: Clock | None, saw_nodes: Callable[[int], int]) -> None:
        """Lease on these terms from now on."""
        self.lease_by(terms, clock, saw_nodes)
        # A clock that is moved by hand calls back when it moves, so no thread has to wait for it.
        watch = getattr(clock, "watch", None)
        self._by_hand = watch is not None
        if watch is not None:
            watch(self.return_due)

    def attach(self, hit: Callable[..., Decision], plan: object, back: object, tally: Tally) -> Mapping[str, Any]:
        """Return a `hit` that spends leased tokens without a Python frame, and calls the gate's `hit` otherwise."""
        self._hit, self._tokens.tally = hit, tally
        return {"hit": self._tokens.hit}

    def return_due(self) -> None:
        """Give back the unused tokens of leases that have ended."""
        self._exchange(self._return())

    def run(self, keys: Keys, costs: Costs, mode: int = TAKE, wait: int = 0) -> Decision:
        """Spend from the lease, or ask the server."""
        units = self._leased_units(keys, costs)
        if units is None or mode == UP_TO or not isinstance(keys, str):
            return super().run(keys, costs, mode, wait)
        if mode == PEEK:
            return self._exchange(self._peek(keys, units))
        if units and (mode == TAKE or (mode == RESERVE and not wait)):  # both decide now
            return self._exchange(self._take(keys, units))
        decision = self._ledger.spend(keys, units)
        return super().run(keys, costs, mode, wait) if decision is None else decision

    def _take(self, key: str, units: int) -> Steps[Decision]:
        decision = self._ledger.spend(key, units)
        if decision is not None:
            ahead = self._ledger.low(key)
            if ahead > 1:
                with suppress(*FAILURES):
                    yield from self._refilled(key, 1, ahead)
            return decision
        for _ in range(ROUNDS):
            decision = self._refused(key, units, missed=units)
            answer = self._ledger.answer(key, units) if decision is None else None
            if answer is None:
                break
            yield from self._wait_for(answer)
            if answer.error is not None:
                raise failed("the store cannot answer now", answer.error) from answer.error
            decision = self._ledger.spend(key, units)
            if decision is not None:
                break
        return (yield from self._ask_for(key, units)) if decision is None else decision

    def _wait_for(self, answer: Reply) -> Iterable[Command]:
        """Wait for the answer to a question that another thread asks: no command is sent."""
        answer.wait(LONGEST_WAIT)
        return ()

    def _ask_for(self, key: str, units: int) -> Steps[Decision]:
        """Ask the server for these units, and for tokens ahead if the ledger wants them."""
        wanted = self._ledger.wanted(key, units)
        if wanted == units and not self._ledger.turns.needed:
            return (yield from self._exactly(key, units))
        try:
            answer = yield from self._refilled(key, units, wanted)
        except FAILURES as error:
            raise failed("the store cannot answer now", error) from error
        decision = self._own(answer, units, wanted)
        if decision is None:
            decision = self._ledger.spend(key, units)
        if decision is None:
            decision = self._refused(key, units)
        if decision is None and answer is not None and not answer.allowed:
            decision = answer
        return (yield from self._exactly(key, units)) if decision is None else decision

    def _refilled(self, key: str, units: int, most: int) -> Steps[Decision | None]:
        decision = yield from self._refill(key, units, most)
        if (
            decision is not None
            and decision.allowed
            and not (self._by_hand or decision is self._own(decision, units, most))
        ):
            returns.look_after(self)  # unused tokens are given back even if no more requests come
        return decision

    def give(self, keys: Keys, units: Costs, marks: Marks) -> None:
        """Give back to the lease, or to the server."""
        if self._returned_to_lease(keys, units, marks):
            self._exchange(self._return(RETURNED_AT_ONCE))
        else:
            super().give(keys, units, marks)
            self._gave(keys)

    def clear(self, key: str) -> None:
        """Forget a key under every limit."""
        self._ledger.forget(key)
        try:
            super().clear(key)
        finally:
            self._ledger.forget(key)  # again, for tokens that were charged meanwhile

    def close(self) -> None:
        """Give back every lease."""
        self._exchange(self._return(-1))
        returns.leave(self)


class AsyncLeasedLimits(AsyncBoundLimits, Leasing):
    """Leased limits for event loops: tasks refill leases, ahead of need if possible."""

    def lease(self, terms: Lease, clock: Clock | None, saw_nodes: Callable[[int], int]) -> None:
        """Lease on these terms from now on."""
        self.lease_by(terms, clock, saw_nodes)
        self._refilling: dict[str, Refill] = {}
        self._sweeps: set[asyncio.Task[None]] = set()
        self._sweeping: asyncio.Task[None] | None = None

    def attach(self, hit: Callable[..., Any], plan: object, back: object, tally: Tally) -> Mapping[str, Any]:
        """Return a `hit` that spends leased tokens at once, and calls the gate's `hit` otherwise."""
        self._hit, self._tokens.tally = hit, tally
        return {"hit": self._spend_or_ask}

    async def _spend_or_ask(self, key: str, cost: Cost = 1, *, limit: Given | None = None) -> Decision:
        answer: Any = self._tokens.hit(key, cost, limit=limit)
        return answer if isinstance(answer, Decision) else await answer

    def _after_fork(self) -> None:
        super()._after_fork()
        self._abandoned = self._refilling, self._sweeps  # kept, since they belong to the parent's event loop
        self._refilling, self._sweeps, self._sweeping = {}, set(), None

    async def run(self, keys: Keys, costs: Costs, mode: int = TAKE, wait: int = 0) -> Decision:
        """Spend from the lease, or ask the server."""
        units = self._leased_units(keys, costs)
        if units is None or mode == UP_TO or not isinstance(keys, str):
            return await super().run(keys, costs, mode, wait)
        if mode == PEEK:
            return await self._exchange(self._peek(keys, units))
        if units and (mode == TAKE or (mode == RESERVE and not wait)):  # both decide now
            return await self._take(keys, units)
        decision = self._ledger.spend(keys, units)
        return await super().run(keys, costs, mode, wait) if decision is None else decision

    async def _take(self, key: str, units: int) -> Decision:
        ledger = self._ledger
        decision = ledger.spend(key, units)
        if decision is not None:
            ahead = ledger.low(key)
            if ahead > 1 and self._refill_here(key) is None:
                self._start_refill(key, 1, ahead)
            return decision
        for _ in range(ROUNDS):
            decision = self._refused(key, units, missed=units)
            refilling = self._refill_here(key) if decision is None else None
            if refilling is None:
                break
            ledger.answer(key, units)
            await self._answer_of(refilling)
            decision = ledger.spend(key, units)
            if decision is not None:
                break
        return await self._ask_for(key, units) if decision is None else decision

    async def _ask_for(self, key: str, units: int) -> Decision:
        """Ask the server for these units, and for tokens ahead if the ledger wants them."""
        wanted = self._ledger.wanted(key, units)
        if self._refill_here(key) is not None or (wanted == units and not self._ledger.turns.needed):
            return await self._exchange(self._exactly(key, units))
        answer = await self._answer_of(self._start_refill(key, units, wanted))
        decision = self._own(answer, units, wanted)
        if decision is None:
            decision = self._ledger.spend(key, units)
        return await self._exchange(self._exactly(key, units)) if decision is None else decision

    @staticmethod
    async def _answer_of(refilling: Refill) -> Decision | None:
        await asyncio.wait([refilling])
        answer = None if refilling.cancelled() else refilling.result()
        if isinstance(answer, BaseException):
            raise failed("the store cannot answer now", answer) from answer
        return answer

    def _refill_here(self, key: str) -> Refill | None:
        """Return the refill that runs in this event loop: one in another loop cannot be awaited."""
        task = self._refilling.get(key)
        return task if task is not None and task.get_loop() is running_loop() else None

    def _start_refill(self, key: str, units: int, most: int) -> Refill:
        loop = running_loop()
        task = self._refilling[key] = loop.create_task(self._refilled(key, units, most))
        return task

    async def _refilled(self, key: str, units: int, most: int) -> Decision | BaseException | None:
        """Refill: the tokens are in the ledger; the answer, or the failure, is returned."""
        try:
            answer = await self._exchange(self._refill(key, units, most))
        except FAILURES as error:
            return error
        finally:
            if self._refilling.get(key) is asyncio.current_task():
                del self._refilling[key]
        self._sweep_soon()
        return answer

    def _sweep_soon(self) -> None:
        sweeping = self._sweeping
        if sweeping is None or sweeping.done() or not sweeping.get_loop().is_running():
            self._sweep_later()

    def _sweep_later(self) -> None:
        """Start a task, and no timer: the end of `asyncio.run` cancels tasks, while timers would start new ones."""
        pause = self.next_return()
        self._sweeping = None
        if pause is not None:
            task = self._sweeping = running_loop().create_task(self._sweep(max(MOMENT, pause)))
            self._sweeps.add(task)
            task.add_done_callback(self._sweeps.discard)

    async def _sweep(self, pause: float) -> None:
        """Give back the unused tokens of leases that have ended, and repeat while there are leases."""
        await asyncio.sleep(pause)
        if self._sweeping is asyncio.current_task():
            self._sweep_later()
            await self._exchange(self._return())

    async def give(self, keys: Keys, units: Costs, marks: Marks) -> None:
        """Give back to the lease, or to the server."""
        if self._returned_to_lease(keys, units, marks):
            await self._exchange(self._return(RETURNED_AT_ONCE))
        else:
            await super().give(keys, units, marks)
            self._gave(keys)

    async def clear(self, key: str) -> None:
        """Forget a key under every limit."""
        self._ledger.forget(key)
        try:
            await super().clear(key)
        finally:
            self._ledger.forget(key)  # again, for tokens that were charged meanwhile

    async def aclose(self) -> None:
        """Give back every lease."""
        loop = running_loop()
        if self._sweeping is not None and self._sweeping.get_loop() is loop:
            self._sweeping.cancel()
            self._sweeping = None
        under_way = [task for task in (*self._refilling.values(), *self._sweeps) if task.get_loop() is loop]
        if under_way:
            await asyncio.wait(under_way)
        await self._exchange(self._return(-1))
