"""The pure twin: the reference steps over a dict, behind one lock. Same behaviour as `native.pyx`, slower."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence

from headgate.algorithms.contract import Verdict
from headgate.call import Cost, checked_cost, checked_costs, checked_key
from headgate.clock import Clock
from headgate.decision import Decision
from headgate.engine.modes import PEEK, RESERVE, TAKE, UP_TO, read_clock
from headgate.engine.pure_table import BoundLimit, Cell, Family, Table
from headgate.limit import Given, Limit
from headgate.permit import Permit

_engines: weakref.WeakSet[Engine] = weakref.WeakSet()


class Engine:
    """What the tables of one store share: a clock, and the lock that makes a decision one step."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.lock = threading.Lock()
        self.on_eviction: Callable[[Limit, Table], None] | None = None
        _engines.add(self)

    def tell_evictions(self, on_eviction: Callable[[Limit, Table], None]) -> None:
        """Call this with a limit and its table, once for each table that has to forget a key with something in use."""
        self.on_eviction = on_eviction

    def family(self) -> Family:
        """For tables of one algorithm and period whose states differ in size."""
        return Family()

    def table(self, limit: Limit, max_keys: int, family: Family | None = None) -> Table:
        """A table for states such as this limit's."""
        return Table(self, limit, max_keys, family)

    def decider(
        self, tables: Sequence[Table], limits: Sequence[Limit], plan: Plan | None = None, instead: object = None
    ) -> Decider:
        """Decisions over limits, each on its table; `plan` finds the decider of limits chosen for one call.

        `instead` answers where a table cannot; these always can.
        """
        return Decider(self, tuple(map(BoundLimit, tables, limits)), plan)


def _renew_locks() -> None:
    """A fork may have copied a lock that another thread held."""
    for engine in _engines:
        engine.lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_locks)


class Decider:
    """Lanes, and decisions over them: the hot part of a gate."""

    def __init__(self, engine: Engine, bounds: tuple[BoundLimit, ...], plan: Plan | None) -> None:
        self.engine = engine
        self.bounds = bounds
        self.limits = tuple(bound.limit for bound in bounds)
        self._plan = plan
        self._waiting: Mapping[str, object] = {}
        self._wait: Wait
        self._wake: Callable[[Decision], None]
        self._back: Callable[[Decision], None]

    def hit(self, key: str, cost: Cost = 1, *, limit: Given | None = None) -> Decision:
        """Spend, if every limit allows."""
        return self._ask(key, cost, limit, TAKE)

    def peek(self, key: str, cost: Cost = 1, *, limit: Given | None = None) -> Decision:
        """What `hit` would answer; writes nothing."""
        return self._ask(key, cost, limit, PEEK)

    def take_up_to(self, key: str, n: int, *, limit: Given | None = None) -> Decision:
        """Spend as much of `n` as fits now."""
        return self._ask(key, checked_cost(n), limit, UP_TO)

    def back_by(self, back: Callable[[Decision], None]) -> None:
        """Let `release` give back by this."""
        self._back = back

    def wait_by(self, waiting: Mapping[str, object], wait: Wait, wake: Callable[[Decision], None]) -> None:
        """Let `acquire` turn to `wait` when somebody is in the queue, or the answer is no; releases wake them."""
        self._waiting, self._wait, self._wake = waiting, wait, wake

    def acquire(
        self, key: str, cost: Cost = 1, timeout: float | None = None, *, limit: Given | None = None
    ) -> Decision:
        """Spend, waiting for it where that is needed."""
        if timeout is None and limit is None and not self._waiting:
            decision = self._ask(key, cost, None, TAKE)
            if decision.allowed:
                return decision
        return self._wait(key, cost, timeout, limit)

    def permit(self, key: str, cost: Cost = 1, timeout: float | None = 0) -> Permit:
        """Spend, waiting for it where that is needed and wanted, until the permit ends."""
        plain = timeout is None or (type(timeout) in (int, float) and timeout >= 0)  # or `wait` raises
        decision = self._ask(key, cost, None, TAKE) if plain and not self._waiting else None
        if decision is None or not (decision.allowed or timeout == 0):
            decision = self._wait(key, cost, timeout, None)
        return Permit(decision, self.release)

    def release(self, decision: Decision) -> None:
        """Give back what the decision has in flight, if that was not done before."""
        self._back(decision)
        if self._waiting:
            self._wake(decision)

    def holders(self, key: str) -> list[tuple[int, int, int, bool]]:
        """What each bound has in flight: its place, since when, units, and whether this process holds it."""
        found: list[tuple[int, int, int, bool]] = []
        with self.engine.lock:
            now = read_clock(self.engine.clock)
            for place, bound in enumerate(self.bounds):
                cell = bound.find(checked_key(key), now) if bound.limit.in_flight else None
                state = sorted(zip(*(cell.state[at::3] for at in range(3)), strict=True)) if cell else []
                found += [(place, since, units, True) for since, _, units in state]
        return found

    def reserve(self, key: str, cost: Cost, wait: int, limit: Given | None = None) -> Decision:
        """Spend now what fits now, or where every limit lends, within so many microseconds."""
        return self._ask(key, cost, limit, RESERVE, wait)

    def _ask(self, key: str, cost: Cost, limit: Given | None, mode: int, wait: int = 0) -> Decision:
        decider = self if limit is None or self._plan is None else self._plan(limit)
        return decider.run(checked_key(key), checked_costs(decider.limits, cost), mode, wait)

    def run(self, keys: str | tuple[str, ...], costs: tuple[int, ...], mode: int = TAKE, wait: int = 0) -> Decision:
        """One decision, a cost for each bound: every bound is asked, then all are charged or none is."""
        wait = wait if all(bound.lends for bound in self.bounds) else 0
        if len(self.bounds) == 1:
            return self._run_one(self.bounds[0], keys if isinstance(keys, str) else keys[0], costs[0], mode, wait)
        return self._run_many(keys, costs, mode, wait)

    def _run_one(self, bound: BoundLimit, key: str, cost: int, mode: int, wait: int) -> Decision:
        with self.engine.lock:
            now = read_clock(self.engine.clock)
            cell = bound.find(key, now)
            if mode == UP_TO and cost:
                cost = max(1, min(cost, bound.look(cell, now, 0)[0].remaining))
            verdict, until = bound.look(cell, now, cost, wait)
            if verdict.allowed and mode != PEEK:
                cell = cell or bound.place(key, now)
                bound.limit.step.charge(cell.state, bound.limit.params, verdict.mark, cost)
            elif not verdict.allowed:
                self._refuse([(bound, cell)], [(verdict, until)], now, mode)
        allowed, remaining, retry, reset, mark, _ = verdict
        return Decision(self.limits, key, (cost,), [allowed, remaining, retry, reset, *mark], charged=mode != PEEK)

    def _run_many(self, keys: str | tuple[str, ...], costs: tuple[int, ...], mode: int, wait: int) -> Decision:
        each = (keys,) * len(self.bounds) if isinstance(keys, str) else keys
        with self.engine.lock:
            now = read_clock(self.engine.clock)
            asked = [(bound, bound.find(key, now)) for bound, key in zip(self.bounds, each, strict=True)]
            if mode == UP_TO and costs[0]:
                room = min(bound.look(cell, now, 0)[0].remaining for bound, cell in asked)
                costs = (max(1, min(costs[0], room)),) * len(costs)
            looks = [bound.look(cell, now, cost, wait) for (bound, cell), cost in zip(asked, costs, strict=True)]
            if not all(verdict.allowed for verdict, _ in looks):
                looks = self._refuse(asked, looks, now, mode)
            elif mode != PEEK:
                for bound, key, (verdict, _), cost in zip(self.bounds, each, looks, costs, strict=True):
                    cell = bound.place(key, now)
                    bound.limit.step.charge(cell.state, bound.limit.params, verdict.mark, cost)
        answers: list[int] = []
        for verdict, _ in looks:
            answers += (verdict.allowed, verdict.remaining, verdict.retry_us, verdict.reset_us, *verdict.mark)
        return Decision(self.limits, keys, costs, answers, charged=mode != PEEK)

    @staticmethod
    def _refuse(
        asked: list[tuple[BoundLimit, Cell | None]], looks: list[tuple[Verdict, int]], now: int, mode: int
    ) -> list[tuple[Verdict, int]]:
        """A no charges nothing; it starts blocks, and keeps a state that had to follow the clock back.

        A limit that would have allowed then says what it holds without the charge.
        """
        for (bound, cell), (verdict, until) in zip(asked, looks, strict=True):
            if cell is not None and mode != PEEK:
                if verdict.moved:
                    bound.limit.step.charge(cell.state, bound.limit.params, verdict.mark, 0)
                if not verdict.allowed:
                    cell.until = until
        return [
            bound.look(cell, now, 0) if look[0].allowed else look
            for (bound, cell), look in zip(asked, looks, strict=True)
        ]

    def give(self, keys: tuple[str, ...], amounts: tuple[int, ...], marks: tuple[tuple[int, int] | None, ...]) -> None:
        """Give back what was charged at the marks; no mark means charged now."""
        with self.engine.lock:
            now = read_clock(self.engine.clock)
            for bound, key, amount, mark in zip(self.bounds, keys, amounts, marks, strict=True):
                cell = bound.find(key, now)
                if cell is not None:
                    step, params = bound.limit.step, bound.limit.params
                    at = mark or step.answer(cell.state, params, now, 0).mark
                    step.give(cell.state, params, now, at, amount)

    def clear(self, key: str) -> None:
        """Make a key as new."""
        with self.engine.lock:
            now = read_clock(self.engine.clock)
            for bound in self.bounds:
                cell = bound.find(key, now)
                if cell is not None:
                    cell.state[:] = bound.limit.step.fresh(bound.limit.params)
                    cell.until = 0


Plan = Callable[[Given], Decider]
Wait = Callable[[str, Cost, float | None, Given | None], Decision]
