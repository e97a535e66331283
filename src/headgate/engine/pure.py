"""The pure twin: the reference steps over a dict, behind one lock. Same behaviour as `native.pyx`, slower."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from headgate.algorithms.block import shut
from headgate.algorithms.contract import State, Verdict
from headgate.call import Cost, checked_cost, checked_costs, checked_key
from headgate.clock import Clock
from headgate.decision import Decision
from headgate.engine.modes import PEEK, RESERVE, TAKE, UP_TO, WAYS, read_clock, slots_for
from headgate.limit import Given, Limit
from headgate.permit import Permit

CANDIDATES: Final = 2 * WAYS
"""How many keys are looked at for one to give up: as many as a native key has places to live in."""

GOLDEN: Final = 0.6180339887498949

_books: weakref.WeakSet[Book] = weakref.WeakSet()


class Book:
    """What the tables of one store share: a clock, and the lock that makes a decision one step."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.lock = threading.Lock()
        _books.add(self)

    def table(self, limit: Limit, max_keys: int) -> Table:
        """A table for the states of a limit's keys."""
        return Table(self, limit, max_keys)

    def core(
        self, tables: Sequence[Table], limits: Sequence[Limit], plan: Plan | None = None, instead: object = None
    ) -> Core:
        """Decisions over limits, each on its table; `plan` finds the core of limits chosen for one call.

        `instead` answers where a table cannot; these always can.
        """
        return Core(self, tuple(map(Lane, tables, limits)), plan)


def _renew_locks() -> None:
    """A fork may have copied a lock that another thread held."""
    for book in _books:
        book.lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_locks)


class Cell:
    """One key's state."""

    __slots__ = ("state", "until")

    def __init__(self, state: State) -> None:
        self.state = state
        self.until = 0


class Table:
    """The states of one limit's keys, never more of them than there are slots."""

    def __init__(self, book: Book, limit: Limit, max_keys: int) -> None:
        self.book = book
        self.words = limit.step.words(limit.params)
        self.slots = slots_for(max_keys)
        self.evictions = 0
        self._cells: dict[str, Cell] = {}
        self._keys: list[str] = []
        self._hand = 0

    def __len__(self) -> int:
        return len(self._cells)

    def clear(self) -> None:
        """Forget every key."""
        with self.book.lock:
            self._cells.clear()
            self._keys.clear()
            self._hand = 0

    @property
    def bytes(self) -> int:
        """Bytes of states, without what Python objects add."""
        return len(self._cells) * self.words * 8

    def find(self, key: str) -> Cell | None:
        """The cell of a key that was charged before."""
        return self._cells.get(key)

    def place(self, key: str, lane: Lane, now: int) -> Cell:
        """A cell for the key: its own, a new one, or that of the key with the least to lose."""
        cell = self._cells.get(key)
        if cell is not None:
            return cell
        cell = Cell(lane.limit.step.fresh(lane.limit.params))
        index = self._given_up(lane, now)
        if index is None:
            self._keys.append(key)
        else:
            del self._cells[self._keys[index]]
            self._keys[index] = key
        self._cells[key] = cell
        return cell

    def _given_up(self, lane: Lane, now: int) -> int | None:
        """Any as-new key; at the bound, the one with the least quota in use, ties to the nearest reset."""
        count = len(self._keys)
        if count < min(CANDIDATES, self.slots):
            return None
        least: tuple[int, int] | None = None
        victim = None
        self._hand += 1
        leap = int(count * GOLDEN)  # far apart, or heavy users who came together would be looked at together
        for place in range(min(CANDIDATES, count)):
            index = (self._hand + place * leap) % count
            verdict = lane.look(self._cells[self._keys[index]], now, 0)[0]
            if verdict.reset_us == 0:
                return index
            in_use = (-verdict.remaining, verdict.reset_us)
            if least is None or in_use < least:
                least, victim = in_use, index
        if count < self.slots:
            return None
        self.evictions += 1
        return victim


class Lane:
    """A limit on its table."""

    __slots__ = ("limit", "table")

    def __init__(self, table: Table, limit: Limit) -> None:
        self.table = table
        self.limit = limit

    @property
    def lends(self) -> bool:
        """Whether what does not fit now can be charged for later: a block lends nothing."""
        return self.limit.step.LENDS and not self.limit.block_us

    def look(self, cell: Cell | None, now: int, cost: int, wait: int = 0) -> tuple[Verdict, int]:
        """The answer, and the block to keep after a hit; what fits within the wait is lent."""
        step, params = self.limit.step, self.limit.params
        state = cell.state if cell else step.fresh(params)
        if not self.limit.block_us:
            verdict = step.answer(state, params, now, cost)
            if not verdict.allowed and 0 < verdict.retry_us <= wait:
                verdict = step.lend(params, now, cost, verdict)
            return verdict, 0
        until = cell.until if cell else 0
        return shut(until, self.limit.block_us, now, cost, lambda cost: step.answer(state, params, now, cost))


class Core:
    """Lanes, and decisions over them: the hot part of a gate."""

    def __init__(self, book: Book, lanes: tuple[Lane, ...], plan: Plan | None) -> None:
        self.book = book
        self.lanes = lanes
        self.limits = tuple(lane.limit for lane in lanes)
        self._plan = plan
        self._places: Mapping[str, object] = {}
        self._waiter: Waiter
        self._ring: Callable[[Decision], None]
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

    def wait_by(self, places: Mapping[str, object], waiter: Waiter, ring: Callable[[Decision], None]) -> None:
        """Let `acquire` turn to the waiter when somebody is in line, or the answer is no; releases ring for them."""
        self._places, self._waiter, self._ring = places, waiter, ring

    def acquire(
        self, key: str, cost: Cost = 1, timeout: float | None = None, *, limit: Given | None = None
    ) -> Decision:
        """Spend, waiting for it where that is needed."""
        if timeout is None and limit is None and not self._places:
            decision = self._ask(key, cost, None, TAKE)
            if decision.allowed:
                return decision
        return self._waiter(key, cost, timeout, limit)

    def permit(self, key: str, cost: Cost = 1, timeout: float | None = 0) -> Permit:
        """Spend, waiting for it where that is needed and wanted, until the permit ends."""
        plain = timeout is None or (type(timeout) in (int, float) and timeout >= 0)  # or the waiter raises
        decision = self._ask(key, cost, None, TAKE) if plain and not self._places else None
        if decision is None or not (decision.allowed or timeout == 0):
            decision = self._waiter(key, cost, timeout, None)
        return Permit(decision, self.release)

    def release(self, decision: Decision) -> None:
        """Give back what the decision has in flight, if that was not done before."""
        self._back(decision)
        if self._places:
            self._ring(decision)

    def holders(self, key: str) -> list[tuple[int, int, int, bool]]:
        """What each lane has in flight: its place, since when, units, and whether this process holds it."""
        found: list[tuple[int, int, int, bool]] = []
        with self.book.lock:
            for place, lane in enumerate(self.lanes):
                cell = lane.table.find(checked_key(key)) if lane.limit.in_flight else None
                state = sorted(zip(*(cell.state[at::3] for at in range(3)), strict=True)) if cell else []
                found += [(place, since, units, True) for since, _, units in state]
        return found

    def reserve(self, key: str, cost: Cost, wait: int, limit: Given | None = None) -> Decision:
        """Spend now what fits now, or where every limit lends, within so many microseconds."""
        return self._ask(key, cost, limit, RESERVE, wait)

    def _ask(self, key: str, cost: Cost, limit: Given | None, mode: int, wait: int = 0) -> Decision:
        core = self if limit is None or self._plan is None else self._plan(limit)
        return core.run(checked_key(key), checked_costs(core.limits, cost), mode, wait)

    def run(self, keys: str | tuple[str, ...], costs: tuple[int, ...], mode: int = TAKE, wait: int = 0) -> Decision:
        """One decision, a cost for each lane: every lane is asked, then all are charged or none is."""
        wait = wait if all(lane.lends for lane in self.lanes) else 0
        if len(self.lanes) == 1:
            return self._run_one(self.lanes[0], keys if isinstance(keys, str) else keys[0], costs[0], mode, wait)
        return self._run_many(keys, costs, mode, wait)

    def _run_one(self, lane: Lane, key: str, cost: int, mode: int, wait: int) -> Decision:
        with self.book.lock:
            now = read_clock(self.book.clock)
            cell = lane.table.find(key)
            if mode == UP_TO and cost:
                cost = max(1, min(cost, lane.look(cell, now, 0)[0].remaining))
            verdict, until = lane.look(cell, now, cost, wait)
            if verdict.allowed and mode != PEEK:
                cell = cell or lane.table.place(key, lane, now)
                lane.limit.step.charge(cell.state, lane.limit.params, verdict.mark, cost)
            elif not verdict.allowed:
                self._refuse([(lane, cell)], [(verdict, until)], now, mode)
        allowed, remaining, retry, reset, mark, _ = verdict
        return Decision(self.limits, key, (cost,), [allowed, remaining, retry, reset, *mark], charged=mode != PEEK)

    def _run_many(self, keys: str | tuple[str, ...], costs: tuple[int, ...], mode: int, wait: int) -> Decision:
        each = (keys,) * len(self.lanes) if isinstance(keys, str) else keys
        with self.book.lock:
            now = read_clock(self.book.clock)
            asked = [(lane, lane.table.find(key)) for lane, key in zip(self.lanes, each, strict=True)]
            if mode == UP_TO and costs[0]:
                room = min(lane.look(cell, now, 0)[0].remaining for lane, cell in asked)
                costs = (max(1, min(costs[0], room)),) * len(costs)
            looks = [lane.look(cell, now, cost, wait) for (lane, cell), cost in zip(asked, costs, strict=True)]
            if not all(verdict.allowed for verdict, _ in looks):
                looks = self._refuse(asked, looks, now, mode)
            elif mode != PEEK:
                for lane, key, (verdict, _), cost in zip(self.lanes, each, looks, costs, strict=True):
                    cell = lane.table.place(key, lane, now)
                    lane.limit.step.charge(cell.state, lane.limit.params, verdict.mark, cost)
        answers: list[int] = []
        for verdict, _ in looks:
            answers += (verdict.allowed, verdict.remaining, verdict.retry_us, verdict.reset_us, *verdict.mark)
        return Decision(self.limits, keys, costs, answers, charged=mode != PEEK)

    @staticmethod
    def _refuse(
        asked: list[tuple[Lane, Cell | None]], looks: list[tuple[Verdict, int]], now: int, mode: int
    ) -> list[tuple[Verdict, int]]:
        """A no charges nothing; it starts blocks, and keeps a state that had to follow the clock back.

        A limit that would have allowed then says what it holds without the charge.
        """
        for (lane, cell), (verdict, until) in zip(asked, looks, strict=True):
            if cell is not None and mode != PEEK:
                if verdict.moved:
                    lane.limit.step.charge(cell.state, lane.limit.params, verdict.mark, 0)
                if not verdict.allowed:
                    cell.until = until
        return [
            lane.look(cell, now, 0) if look[0].allowed else look
            for (lane, cell), look in zip(asked, looks, strict=True)
        ]

    def give(self, keys: tuple[str, ...], amounts: tuple[int, ...], marks: tuple[tuple[int, int] | None, ...]) -> None:
        """Give back what was charged at the marks; no mark means charged now."""
        with self.book.lock:
            now = read_clock(self.book.clock)
            for lane, key, amount, mark in zip(self.lanes, keys, amounts, marks, strict=True):
                cell = lane.table.find(key)
                if cell is not None:
                    step, params = lane.limit.step, lane.limit.params
                    at = mark or step.answer(cell.state, params, now, 0).mark
                    step.give(cell.state, params, now, at, amount)

    def clear(self, key: str) -> None:
        """Make a key as new."""
        with self.book.lock:
            for lane in self.lanes:
                cell = lane.table.find(key)
                if cell is not None:
                    cell.state[:] = lane.limit.step.fresh(lane.limit.params)
                    cell.until = 0


Plan = Callable[[Given], Core]
Waiter = Callable[[str, Cost, float | None, Given | None], Decision]
