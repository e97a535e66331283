"""The pure twin: the reference steps over a dict, behind one lock. Same behaviour as `native.pyx`, slower."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Sequence

from headgate.algorithms.contract import Verdict
from headgate.clock import Clock
from headgate.decision import Decision
from headgate.engine.modes import PEEK, TAKE, UP_TO, read_clock
from headgate.engine.pure_table import BoundLimit, Cell, Family, Table
from headgate.limit import Limit

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

    def decider(self, tables: Sequence[Table], limits: Sequence[Limit]) -> Decider:
        """Decisions over limits, each on its table."""
        return Decider(self, tuple(map(BoundLimit, tables, limits)))


def _renew_locks() -> None:
    """A fork may have copied a lock that another thread held."""
    for engine in _engines:
        engine.lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_locks)


class Decider:
    """Bound limits, and decisions over them."""

    def __init__(self, engine: Engine, bounds: tuple[BoundLimit, ...]) -> None:
        self.engine = engine
        self.bounds = bounds
        self.limits = tuple(bound.limit for bound in bounds)

    def holders(self, key: str) -> list[tuple[int, int, int, bool]]:
        """The permits of a key that are in flight: the index of the limit, age, units, all of this process."""
        found: list[tuple[int, int, int, bool]] = []
        with self.engine.lock:
            now = read_clock(self.engine.clock)
            for at, bound in enumerate(self.bounds):
                cell = bound.find(key, now) if bound.limit.in_flight else None
                state = sorted(zip(*(cell.state[at::3] for at in range(3)), strict=True)) if cell else []
                found += [(at, max(0, now - since), units, True) for since, _, units in state]
        return found

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
            if mode == PEEK:
                verdict = self._uncharged(bound, cell, now, verdict)
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
            elif mode == PEEK:
                looks = [
                    (self._uncharged(bound, cell, now, verdict), until)
                    for (bound, cell), (verdict, until) in zip(asked, looks, strict=True)
                ]
            else:
                for bound, key, (verdict, _), cost in zip(self.bounds, each, looks, costs, strict=True):
                    cell = bound.place(key, now)
                    bound.limit.step.charge(cell.state, bound.limit.params, verdict.mark, cost)
        answers: list[int] = []
        for verdict, _ in looks:
            answers += (verdict.allowed, verdict.remaining, verdict.retry_us, verdict.reset_us, *verdict.mark)
        return Decision(self.limits, keys, costs, answers, charged=mode != PEEK)

    @staticmethod
    def _uncharged(bound: BoundLimit, cell: Cell | None, now: int, verdict: Verdict) -> Verdict:
        """The verdict of a cost that is not charged: what remains, and until when, is what is there now."""
        if not verdict.allowed:
            return verdict
        free = bound.look(cell, now, 0)[0]
        return verdict._replace(remaining=free.remaining, reset_us=free.reset_us)

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

    def give(
        self, keys: str | tuple[str, ...], amounts: tuple[int, ...], marks: tuple[tuple[int, int] | None, ...]
    ) -> None:
        """Give back what was charged at the marks; no mark means charged now."""
        with self.engine.lock:
            now = read_clock(self.engine.clock)
            each = (keys,) * len(self.bounds) if isinstance(keys, str) else keys
            for bound, key, amount, mark in zip(self.bounds, each, amounts, marks, strict=True):
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
