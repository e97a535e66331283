"""The tables of the pure engine: a bounded number of states in a dict, by key and by the name of the limit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.engine.modes import slots_for, words_for
from headgate.engine.steps import Cell, remembered
from headgate.layout import WAYS
from headgate.limit import Limit

if TYPE_CHECKING:
    from headgate.engine.pure import Engine

CANDIDATES: Final = 2 * WAYS
"""The number of keys that are compared when one must be dropped: the number of places of a native key."""

GOLDEN: Final = 0.6180339887498949


class Family:
    """The tables of one algorithm and period whose states differ in size, the smallest first.

    A key is in one of them. A state that has become too small for a limit is moved to a larger table when its key is
    next looked up.
    """

    def __init__(self) -> None:
        self.tables: list[Table] = []

    def add(self, table: Table) -> None:
        """Add a table, unless it is here already."""
        if table not in self.tables:
            self.tables.insert(sum(other.words < table.words for other in self.tables), table)


Filed = str | tuple[str, str]
"""A key under a limit: limits of several names share a table."""


class Table:
    """The states of keys under limits of one algorithm and period, at most one for each slot."""

    def __init__(self, engine: Engine, limit: Limit, max_keys: int, family: Family | None) -> None:
        self.engine = engine
        self.family = family
        self.words = words_for(limit)
        self.slots = slots_for(max_keys)
        self.evictions = 0
        self._cells: dict[Filed, Cell] = {}
        self._keys: list[Filed] = []
        self._hand = 0

    def __len__(self) -> int:
        return len(self._cells)

    def clear(self) -> None:
        """Forget every key."""
        with self.engine.lock:
            self._cells.clear()
            self._keys.clear()
            self._hand = 0

    @property
    def bytes(self) -> int:
        """The bytes of the states, without the overhead of Python objects."""
        return len(self._cells) * self.words * 8

    def find(self, key: Filed) -> Cell | None:
        """Return the cell of a key, or None if it was never charged."""
        return self._cells.get(key)

    def forget(self, key: Filed) -> Cell:
        """Remove and return the cell of a key that moves to another table."""
        at, last = self._keys.index(key), self._keys.pop()
        if at < len(self._keys):
            self._keys[at] = last
        return self._cells.pop(key)

    def place(self, key: Filed, bound: BoundLimit, now: int, cell: Cell) -> None:
        """Put a cell here: in a free slot, or in place of the key with the least quota in use."""
        index = self._given_up(bound, now)
        if index is None:
            self._keys.append(key)
        else:
            del self._cells[self._keys[index]]
            self._keys[index] = key
        self._cells[key] = cell

    def _given_up(self, bound: BoundLimit, now: int) -> int | None:
        """Return the index of an unused key; if the table is full, of the one with least in use, then nearest reset."""
        count = len(self._keys)
        if count < min(CANDIDATES, self.slots):
            return None
        least: tuple[int, int] | None = None
        victim = None
        self._hand += 1
        leap = int(count * GOLDEN)  # far apart, because heavy users that arrived together would be compared together
        for place in range(min(CANDIDATES, count)):
            index = (self._hand + place * leap) % count
            verdict = remembered(bound.limit, self._cells[self._keys[index]], now)
            if verdict.reset_us == 0:
                return index
            in_use = (-verdict.remaining, verdict.reset_us)
            if least is None or in_use < least:
                least, victim = in_use, index
        if count < self.slots:
            return None
        self.evictions += 1
        if self.evictions == 1 and self.engine.on_eviction is not None:
            self.engine.on_eviction(bound.limit, self)
        return victim


class BoundLimit:
    """A limit and its table."""

    __slots__ = ("limit", "need", "table")

    def __init__(self, table: Table, limit: Limit) -> None:
        self.table = table
        self.limit = limit
        self.need = limit.step.words(limit.params)

    def filed(self, key: str) -> Filed:
        """Return the key under this limit's name."""
        return (self.limit.name, key) if self.limit.name else key

    def find(self, key: str, now: int) -> Cell | None:
        """Return the cell of a key from the table of the family that has it, or None if it was never charged."""
        filed = self.filed(key)
        if self.table.family is None:
            return self.table.find(filed)
        for table in self.table.family.tables:
            cell = table.find(filed)
            if cell is not None:
                if table.words < self.need:
                    self.table.place(filed, self, now, table.forget(filed))
                return cell
        return None

    def place(self, key: str, now: int, cell: Cell) -> None:
        """Put the first cell of a key into the table."""
        self.table.place(self.filed(key), self, now, cell)
