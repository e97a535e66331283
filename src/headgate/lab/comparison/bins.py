"""Counts over time in a bounded number of bins, without knowing the length of the log."""

from __future__ import annotations

from itertools import zip_longest
from typing import Final

from headgate.clock import SECOND
from headgate.lab.comparison.results import Series

MOST_BINS: Final = 480


class Bins:
    """Bins of equal length; whenever they do not suffice, each pair becomes one bin of twice the length."""

    def __init__(self, limits: int) -> None:
        self.start = 0
        self.width = SECOND
        self.end = -1
        """The end of the last bin: a request at or after it needs another one."""
        self.offered: list[int] = []
        self.refused: list[list[int]] = [[] for _ in range(limits)]
        self.above: list[list[int]] = [[] for _ in range(limits)]

    def reach(self, time: int) -> None:
        """Make the last bin the one of this time, which is at or after its end."""
        if not self.offered:
            self.start = time // SECOND * SECOND
        while (number := (time - self.start) // self.width) >= MOST_BINS:
            self._halve()
        more = [0] * (number + 1 - len(self.offered))
        for counts in (self.offered, *self.refused, *self.above):
            counts.extend(more)
        self.end = self.start + (number + 1) * self.width

    def _halve(self) -> None:
        self.width *= 2
        for counts in (self.offered, *self.refused):
            counts[:] = [one + other for one, other in _pairs(counts)]
        for peaks in self.above:
            peaks[:] = [max(pair) for pair in _pairs(peaks)]

    def series(self) -> Series:
        """Return the counts as plain data."""
        refused, above = (tuple(map(tuple, each)) for each in (self.refused, self.above))
        return Series(self.start, self.width, tuple(self.offered), refused, above)


def _pairs(values: list[int]) -> list[tuple[int, int]]:
    return list(zip_longest(values[::2], values[1::2], fillvalue=0))
