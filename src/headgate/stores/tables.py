"""The common base of stores whose states are in tables: their sizes, and the warning of a full table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from headgate.clock import Clock
from headgate.engine import Decider
from headgate.errors import InvalidCall, StoreError
from headgate.layout import WORD
from headgate.limit import Limit
from headgate.wording import log_of

MOST_TABLES: Final = 256


class TableStore:
    """A store with a table for each namespace, algorithm, period and size of states."""

    decides_by_clock = True

    def __init__(self, engine: Any, max_keys: int | None, max_bytes: int) -> None:  # noqa: ANN401 - of either twin
        for name, value in (("max_keys", max_keys), ("max_bytes", max_bytes)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 2**40):
                raise InvalidCall(f"{name} must be a whole number from 1 to 2**40; got {value!r}")
        self.max_keys = max_keys
        self.max_bytes = max_bytes
        self._engine = engine
        self._engine.tell_evictions(_warn_of_eviction)
        self._families: dict[tuple[str, str], Any] = {}
        """The tables of each namespace, algorithm and period whose states differ in size."""

    @property
    def clock(self) -> Clock:
        """The clock for decisions and for waiting."""
        clock: Clock = self._engine.clock
        return clock

    def bind(self, namespace: str, limits: tuple[Limit, ...]) -> Decider:
        """Bind limits to their tables under a namespace."""
        decider: Decider = self._engine.decider([self._table(namespace, limit) for limit in limits], limits)
        return decider

    def keys(self) -> int:
        """Return the number of keys in all tables, including keys that have no quota in use any more."""
        return sum(len(table) for table in self._each_table())

    def bytes(self) -> int:
        """Return the bytes of memory of the tables."""
        return sum(table.bytes for table in self._each_table())

    def evictions(self) -> int:
        """Return the number of keys that were dropped while they had quota in use, to make room for others."""
        return sum(table.evictions for table in self._each_table())

    def _table(self, namespace: str, limit: Limit) -> Any:  # noqa: ANN401
        """Return the table of a limit, opened at its first use."""
        raise NotImplementedError

    def _each_table(self) -> Iterable[Any]:
        """Return the tables that this process uses."""
        raise NotImplementedError


def check_room(tables: int) -> None:
    """Raise `StoreError` if a store with this number of tables cannot have another."""
    if tables >= MOST_TABLES:
        raise StoreError(
            f"a store has at most {MOST_TABLES} tables, one for each namespace, algorithm, period and size of states; "
            "limits chosen at run time should differ in name or in numbers, not in period"
        )


def _warn_of_eviction(limit: Limit, table: Any) -> None:  # noqa: ANN401 - a table of either twin, private or shared
    """Warn, once for each table, that a dropped key starts with a full limit; name the bytes for twice as many keys."""
    slot = WORD * (1 + table.words + (limit.block_us > 0))
    log_of("headgate").warning(
        "the table of %s limits (such as %s) is full: one of its %d keys was dropped while it had quota in use, "
        "and more will be. Twice as many keys (max_keys=%d) take %d bytes",
        limit.family, limit, table.slots, table.slots * 3 // 2, table.slots * 2 * slot,
    )  # fmt: skip
