"""Requests in the order of their stamps, although servers write their lines in another one."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import islice
from marshal import dumps, loads
from operator import itemgetter, lt
from typing import Final
from zlib import compress, decompress

from headgate.clock import MINUTE, SECOND
from headgate.lab.logs.request import Row

REACH: Final = 5 * MINUTE
"""The longest time by which a line may come after a later request."""
MOST_HELD: Final = 200_000
"""Requests held back to be sorted, as they are. With more of them, whole seconds are packed."""
MOST_PACKED: Final = 1 << 26
"""Bytes of packed seconds: about ten thousand requests a second for five minutes. With more of them, the oldest seconds
are given out early."""
FASTEST: Final = 1
"""The level of compression: the requests of a second repeat each other, so a quick one is enough."""
BATCH: Final = 10_000


class Order:
    """Holds requests by their second until no file can have an earlier one."""

    def __init__(self, spread: bool, most: int | None = None) -> None:
        self._spread, self._most = spread, MOST_HELD if most is None else most
        self._packed: dict[int, list[bytes]] = {}
        """Seconds of which the first requests are packed; requests that came later are held as they are."""
        self._bytes = 0
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
        spread = self._spread
        batch: list[Row] = []
        for second in self._due(floor):
            bucket = self._unpacked(second) if second in self._packed else self._held.pop(second)
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
        seconds = sorted(self._held.keys() | self._packed.keys())
        end = len(seconds) if floor is None else bisect_left(seconds, floor)
        self._count -= sum([len(self._held.get(second, ())) for second in islice(seconds, end)])
        if self._packed:
            self._bytes -= sum([self._size(second) for second in islice(seconds, end)])
        if self._count > self._most:
            self._pack(seconds[end:])
        while self._bytes > MOST_PACKED:
            self._count -= len(self._held.get(seconds[end], ()))
            self._bytes -= self._size(seconds[end])
            end += 1
        del seconds[end:]
        if seconds:
            self._given = seconds[-1] + SECOND
        return seconds

    def _pack(self, seconds: list[int]) -> None:
        """Pack the oldest seconds, until half as many requests are held as they are."""
        for second in seconds:
            if self._count <= self._most // 2:
                return
            if second in self._held:
                bucket = self._held.pop(second)
                packed = compress(dumps(bucket), FASTEST)
                self._packed.setdefault(second, []).append(packed)
                self._count -= len(bucket)
                self._bytes += len(packed)

    def _size(self, second: int) -> int:
        return sum(map(len, self._packed.get(second, ())))

    def _unpacked(self, second: int) -> list[Row]:
        """Return the requests of a second, which are held no longer, in the order of their lines."""
        rows: list[Row] = []
        for packed in self._packed.pop(second, ()):
            rows += loads(decompress(packed))  # noqa: S302 - of this process
        rows += self._held.pop(second, ())
        return rows

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
