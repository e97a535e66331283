"""The pure twin: the reference steps over a dict, behind one lock. Same behaviour as `native.pyx`, slower."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from headgate.clock import Clock
from headgate.decision import Decision
from headgate.engine.modes import TAKE, read_clock
from headgate.engine.pending_call import PendingMethod, looking_like
from headgate.engine.pure_table import BoundLimit, Family, Table
from headgate.engine.steps import Cell, give_back, held_in, recorded_in, settle
from headgate.limit import Limit


class Engine:
    """The clock that the tables of one store share, and the lock that makes a decision one step."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.renew_lock()
        self.on_eviction: Callable[[Limit, Table], None] | None = None

    def renew_lock(self) -> None:
        """Replace the lock in a forked child: another thread may have held it at the fork."""
        self.lock = threading.Lock()

    def tell_evictions(self, on_eviction: Callable[[Limit, Table], None]) -> None:
        """Call this with a limit and its table, once for each table that has to drop a key with quota in use."""
        self.on_eviction = on_eviction

    def family(self) -> Family:
        """Return a family, for tables of one algorithm and period whose states differ in size."""
        return Family()

    def table(self, limit: Limit, max_keys: int, family: Family | None = None) -> Table:
        """Return a table for the states of this limit and of limits like it."""
        return Table(self, limit, max_keys, family)

    def decider(self, tables: Sequence[Table], limits: Sequence[Limit]) -> Decider:
        """Return a decider over limits, each on its table."""
        return Decider(self, tuple(map(BoundLimit, tables, limits)))


class Decider:
    """Bound limits, and decisions over them."""

    def __init__(self, engine: Engine, bounds: tuple[BoundLimit, ...]) -> None:
        self.engine = engine
        self.bounds = bounds
        self.limits = tuple(bound.limit for bound in bounds)

    def run(self, keys: str | tuple[str, ...], costs: tuple[int, ...], mode: int = TAKE, wait: int = 0) -> Decision:
        """Decide, with a cost for each limit: ask every limit, then charge all or none."""
        each = self._each(keys)
        with self.engine.lock:
            now = read_clock(self.engine.clock)
            found = self._find(each, now)
            cells = list(found)
            decision = settle(self.limits, cells, keys, costs, mode, wait, now)
            for bound, key, before, cell in zip(self.bounds, each, found, cells, strict=True):
                if before is None and cell is not None:
                    bound.place(key, now, cell)
        return decision

    def give(
        self, keys: str | tuple[str, ...], amounts: tuple[int, ...], marks: tuple[tuple[int, int] | None, ...]
    ) -> None:
        """Give back units that were charged at these marks; no mark means charged now."""
        with self.engine.lock:
            now = read_clock(self.engine.clock)
            give_back(self.limits, self._find(self._each(keys), now), amounts, marks, now)

    def holders(self, key: str) -> list[tuple[int, int, int, bool]]:
        """Return the permits in flight of a key: limit index, age, units, and True, since this process holds them."""
        with self.engine.lock:
            now = read_clock(self.engine.clock)
            return held_in(self.limits, self._find(self._each(key), now), now)

    def records(self, key: str) -> list[tuple[int, tuple[int, ...]]]:
        """Return, for each limit, the instant until which the key is blocked or 0, and the stamps of a log."""
        with self.engine.lock:
            now = read_clock(self.engine.clock)
            return recorded_in(self.limits, self._find(self._each(key), now), now)

    def clear(self, key: str) -> None:
        """Forget a key under every limit."""
        with self.engine.lock:
            now = read_clock(self.engine.clock)
            for limit, cell in zip(self.limits, self._find(self._each(key), now), strict=True):
                if cell is not None:
                    cell.state[:] = limit.step.fresh(limit.params)
                    cell.until = 0

    def _each(self, keys: str | tuple[str, ...]) -> tuple[str, ...]:
        return (keys,) * len(self.bounds) if isinstance(keys, str) else keys

    def _find(self, keys: tuple[str, ...], now: int) -> list[Cell | None]:
        return [bound.find(key, now) for bound, key in zip(self.bounds, keys, strict=True)]


def pending(method: Callable[..., Any], function: Callable[..., Any], awaits: bool) -> Any:  # noqa: ANN401
    """Return the method, answered by this function when awaited; `awaits`: the function must be awaited itself."""
    return looking_like(method, PendingMethod(function, awaits))
