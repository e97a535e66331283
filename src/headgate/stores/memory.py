"""States in the memory of this process: no server, no thread, no timer, and a bound on memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from headgate.clock import Clock, SystemClock
from headgate.engine import Engine, Table, words_for
from headgate.errors import InvalidLimit
from headgate.forks import after_fork
from headgate.layout import WORD
from headgate.limit import Limit
from headgate.stores.tables import TableStore, check_room
from headgate.wording import explained

DEFAULT_MAX_KEYS: Final = 1_000_000
DEFAULT_MAX_BYTES: Final = 256 * 2**20


class MemoryStore(TableStore):
    """The default store. Limiters with the same `MemoryStore` share the states of limits of the same identity.

    Limits of one algorithm and period, and of about one size where sizes differ, keep their states in one table.
    `max_keys` bounds the keys of a table (default: as many as fit `max_bytes`, at most a million). In a full table, a
    new key takes the place of a key that has no quota in use, or else of a key that has the least in use.
    """

    _engine_type = Engine

    @explained
    def __init__(
        self, *, max_keys: int | None = None, max_bytes: int = DEFAULT_MAX_BYTES, clock: Clock | None = None
    ) -> None:
        super().__init__(self._engine_type(clock or SystemClock()), max_keys, max_bytes)
        self._tables: dict[tuple[str, str, int], Table] = {}
        """The tables, by namespace, family and words of a state."""
        self._flying: list[Table] = []
        """The tables of limits in flight."""
        after_fork(self._after_fork)

    def clear(self, namespace: str) -> None:
        """Forget every key of a namespace."""
        for (name, *_), table in list(self._tables.items()):
            if name == namespace:
                table.clear()

    def _table(self, namespace: str, limit: Limit) -> Table:
        name = (namespace, limit.family, words_for(limit))
        table = self._tables.get(name)
        if table is None:
            check_room(len(self._tables))
            # No lock, which a fork could copy while it is held: of two threads at once, one discards its table.
            family = self._families.setdefault(name[:2], self._engine.family()) if limit.step.SIZED else None
            table = self._engine.table(limit, self._capacity(limit), family)
            if family is not None:  # before the table is in use: a key that is not found gets a new state
                family.add(table)
            table = self._tables.setdefault(name, table)
            if limit.in_flight:
                self._flying.append(table)
        return table

    def _each_table(self) -> Iterable[Table]:
        return self._tables.values()

    def _after_fork(self) -> None:
        """Renew the lock, and drop the permits in flight: they belong to the parent process, which releases them."""
        self._engine.renew_lock()
        for table in self._flying:
            table.clear()

    def _capacity(self, limit: Limit) -> int:
        """Return the number of keys that the limit's table is made for: three quarters of its slots."""
        slot = WORD * (1 + words_for(limit) + (limit.block_us > 0))
        fitting = self.max_bytes * 3 // (slot * 4)
        if fitting < 1 or (self.max_keys or 1) > fitting:
            keys = self.max_keys or 1
            need = f"{keys} keys need" if keys > 1 else "1 key needs"
            lower = f"lower max_keys to {fitting} or " if fitting else ""
            raise InvalidLimit(
                f"{limit} keeps {slot} bytes a key, so {need} {-(-slot * keys * 4 // 3)} bytes and "
                f"max_bytes is {self.max_bytes}; {lower}raise max_bytes"
            )
        return self.max_keys or min(fitting, DEFAULT_MAX_KEYS)
