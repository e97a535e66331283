"""The permits of this process in a database: a transaction renews those of several keys."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby, islice
from typing import Any, Final

from headgate.errors import StoreError
from headgate.stores.renewal import BaseRenewal, Held
from headgate.stores.sql.bound import Changes, Task
from headgate.stores.sql.names import Name
from headgate.stores.sql.rows import Row, Stored, read, write
from headgate.wording import log_of

MOST_ROWS: Final = 50
"""The most rows that one transaction locks and renews."""
Group = tuple[Name, int, list[Held]]
"""A row, the number of its key, and the permits in it."""
log = log_of("headgate")


class PermitRenewal(BaseRenewal):
    """The permits that the gates of one store hold in this process."""

    def __init__(self, transact: Callable[[Task[Any]], Any]) -> None:
        self._transact = transact
        super().__init__()

    def renew(self, due: Iterable[Held]) -> None:
        """Renew these permits in the database now."""
        groups = iter(_by_row(due))
        while some := list(islice(groups, MOST_ROWS)):
            batch = [held for _, _, permits in some for held in permits]
            sent = time.monotonic()
            try:
                left = self._transact(_renewing(some))
            except StoreError as error:
                log.warning("%d permits were not renewed; the next attempt follows: %s", len(batch), error)
                continue
            self.note(batch, left, sent)


def _by_row(due: Iterable[Held]) -> list[Group]:
    named = []
    for held in due:
        (name,), (lock,) = held.names.rows((held.limit,), held.key)
        named.append((name, lock, held))
    named.sort(key=lambda each: each[:2])
    return [(*row, [held for *_, held in each]) for row, each in groupby(named, key=lambda each: each[:2])]


def _renewing(groups: list[Group]) -> Task[list[int]]:
    """Return a task whose result is, for each permit, the number of its units that are still in flight."""

    def work(stored: Sequence[Stored | None], now: int) -> tuple[list[int], Changes]:
        left: list[int] = []
        rows: list[Row] = []
        for (name, _, permits), row in zip(groups, stored, strict=True):
            limit = permits[0].limit
            cell, leases = read(limit, row, now)
            numbers = cell.state if cell is not None else []
            units = {(since, nth): n for since, nth, n in zip(*(numbers[at::3] for at in range(3)), strict=True)}
            left += [units.get(held.mark, 0) for held in permits]
            leases |= {held.mark: now + held.limit.period_us for held in permits if held.mark in leases}
            if cell is not None:
                rows.append(write(name, limit, cell, leases, now))
        return left, Changes(rows)

    return Task([name for name, _, _ in groups], sorted({lock for _, lock, _ in groups}), work)
