"""Requests in the order of their stamps, although servers write their lines in another one."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import islice
from operator import itemgetter, lt
from typing import Final

from headgate.clock import MINUTE, SECOND
from headgate.lab.logs.request import Row

REACH: Final = 5 * MINUTE
"""How much later than a later request a line may come."""
MOST_HELD: Final = 200_000
"""Requests held back to be sorted. With more of them, the oldest seconds are given out early."""
BATCH: Final = 10_000


class Order:
    """Holds requests by their second until no file can have an earlier one."""

    def __init__(self, spread: bool, most: int | None = None) -> None:
        self._spread, self._most = spread, MOST_HELD if most is None else most
        self._held: dict[int, list[Row]] = {}
        self._count = 0
        self._given = 0
        self.late = self.requests = 0
        self.first: int | None = None
        self.last: int | None = None

    def add(self, rows: list[Row], newest: int) -> int:
        """Take the next requests of a file whose newest second so far is given, and return the newest one now."""
        held, late = self._held, 0
        given = self._given
        floor = max(newest - REACH, given)
        begin = end = 0
        append = rows.append  # never called: the first row opens a second
        for row in rows:
            time = row[0]
            if not begin <= time < end:
                second = time - time % SECOND
                if second > newest:
                    newest = second
                    floor = newest - REACH if newest - REACH > given else given
                elif second < floor:
                    late += 1
                    continue
                begin, end = second, second + SECOND
                bucket = held.get(second)
                if bucket is None:
                    bucket = held[second] = []
                append = bucket.append
            append(row)
        self.late += late
        self._count += len(rows) - late
        return newest

    def ready(self, floor: int | None) -> Iterator[list[Row]]:
        """Yield the requests before the second `floor`, or all, and the oldest of too many."""
        held, spread = self._held, self._spread
        batch: list[Row] = []
        for second in self._due(floor):
            bucket = held.pop(second)
            if len(bucket) == 1:
                batch.append(bucket[0])
            elif spread:
                batch += over_second(second, bucket)
            else:
                bucket.sort(key=itemgetter(0))
                batch += bucket
            if len(batch) >= BATCH:
                yield self._noted(batch)
                batch = []
        if batch:
            yield self._noted(batch)

    def _due(self, floor: int | None) -> list[int]:
        """Return the seconds to give out now, oldest first. Their requests count as given."""
        seconds = sorted(self._held)
        end = len(seconds) if floor is None else bisect_left(seconds, floor)
        self._count -= sum([len(self._held[second]) for second in islice(seconds, end)])
        while self._count > self._most:
            self._count -= len(self._held[seconds[end]])
            end += 1
        del seconds[end:]
        if seconds:
            self._given = seconds[-1] + SECOND
        return seconds

    def _noted(self, batch: list[Row]) -> list[Row]:
        self.requests += len(batch)
        self.first = batch[0][0] if self.first is None else self.first
        self.last = batch[-1][0]
        return batch


def over_second(second: int, bucket: list[Row]) -> list[Row]:
    """Spread the requests of a second over it, in the order of their lines."""
    count = len(bucket)
    return [
        (second + i * SECOND // count, key, cost, method, path, status)
        for i, (_, key, cost, method, path, status) in enumerate(bucket)
    ]


def earlier(rows: list[Row], before: int) -> int:
    """Count the rows that are earlier than the row before them."""
    times = [row[0] for row in rows]
    return sum(map(lt, times, [before, *times[:-1]]))
