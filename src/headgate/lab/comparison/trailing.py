"""The exact window: what one client has used in the last period, up to an instant."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

KEPT: Final = 256
"""Uses older than a period that are kept before those of no interest are dropped."""


class Trailing:
    """Units with their times, in the order of time. A use exactly one period old does not count any more."""

    __slots__ = ("_uses", "period", "units")

    def __init__(self, period: int, uses: Iterable[tuple[int, int]] = ()) -> None:
        self.period = period
        self._uses: deque[tuple[int, int]] = deque(uses)
        self.units = sum(cost for _, cost in self._uses)
        """Units in the period up to the last instant that was asked for."""

    def at(self, time: int) -> int:
        """Return the units used in the period up to this instant, which is not before the one asked for last."""
        uses, over = self._uses, time - self.period
        while uses and uses[0][0] <= over:
            self.units -= uses.popleft()[1]
        return self.units

    def add(self, time: int, cost: int) -> int:
        """Add a use; return the units of the period that ends with it."""
        self._uses.append((time, cost))
        self.units += cost
        return self.units


class History:
    """The same, and the uses of the period before: a window that begins to count now needs both."""

    __slots__ = ("_first", "_uses", "period", "units")

    def __init__(self, period: int) -> None:
        self.period = period
        self.units = 0
        self._uses: list[tuple[int, int]] = []
        self._first = 0
        """The place of the first use in the last period."""

    def at(self, time: int) -> int:
        """Return the units used in the period up to this instant, which is not before the one asked for last."""
        uses, first, over = self._uses, self._first, time - self.period
        while first < len(uses) and uses[first][0] <= over:
            self.units -= uses[first][1]
            first += 1
        self._first = first
        if first > KEPT:
            self._forget(over - self.period)
        return self.units

    def add(self, time: int, cost: int) -> int:
        """Add a use; return the units of the period that ends with it."""
        self._uses.append((time, cost))
        self.units += cost
        return self.units

    @property
    def last_period(self) -> Sequence[tuple[int, int]]:
        """The uses of the last period."""
        return self._uses[self._first :]

    @property
    def two_periods(self) -> Sequence[tuple[int, int]]:
        """The uses of the last two periods, and perhaps older ones."""
        return self._uses

    def _forget(self, before: int) -> None:
        kept = next((place for place, use in enumerate(self._uses) if use[0] > before), self._first)
        del self._uses[:kept]
        self._first -= kept
