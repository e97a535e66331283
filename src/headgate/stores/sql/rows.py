"""Rows of the table, and the cells of the reference steps that they hold."""

from __future__ import annotations

from typing import Final, NamedTuple

from headgate.clock import HOUR, MINUTE
from headgate.engine import Cell, look, remembered
from headgate.limit import Limit
from headgate.stores.sql.names import Name

PERMIT: Final = 4
"""The numbers of a permit in a row: instant, number, units, and the end of its lease."""


class Stored(NamedTuple):
    """The columns of a row that a decision reads."""

    state: str
    """Integers, with spaces between them."""
    blocked_until: int


class Row(NamedTuple):
    """The columns that a decision writes."""

    name: Name
    state: str
    blocked_until: int
    remaining: int
    burst: int
    decided_at: int
    expires_at: int


class Read(NamedTuple):
    """A row as a cell; for a limit in flight, with the ends of the leases of its permits."""

    cell: Cell | None
    leases: dict[tuple[int, int], int]


def read(limit: Limit, stored: Stored | None, now: int) -> Read:
    """Return the cell of a row. Permits whose leases have ended are not in it."""
    if stored is None:
        return Read(None, {})
    numbers = list(map(int, stored.state.split()))
    if not limit.in_flight:
        return Read(Cell(numbers, stored.blocked_until), {})
    state: list[int] = []
    leases: dict[tuple[int, int], int] = {}
    for at in range(0, len(numbers), PERMIT):
        since, number, units, until = numbers[at : at + PERMIT]
        if until > now:
            state += (since, number, units)
            leases[since, number] = until
    return Read(Cell(state), leases)


def write(name: Name, limit: Limit, cell: Cell, leases: dict[tuple[int, int], int], now: int) -> Row:
    """Return the row of a cell; permits that are new in it get a lease from now."""
    free = look(limit, cell, now, 0)[0]
    ends = now + remembered(limit, cell, now).reset_us
    numbers = cell.state
    if limit.in_flight:
        numbers, ends = [], now
        for at in range(0, len(cell.state), 3):
            since, number, units = cell.state[at : at + 3]
            until = leases.get((since, number), now + limit.period_us)
            numbers += (since, number, units, until)
            ends = max(ends, until)
    text = " ".join(map(str, numbers))
    return Row(name, text, cell.until, free.remaining, limit.burst, now, _rounded(ends, now))


def _rounded(ends: int, now: int) -> int:
    """Round up to a whole minute or hour: the indexed column changes rarely, so that most updates leave the index."""
    step = MINUTE if ends - now < HOUR else HOUR
    return (ends // step + 1) * step
