"""The exact window: what one client has used in the last period, up to an instant."""

from __future__ import annotations

from collections import deque


class Trailing:
    """Units with their times, in the order of time. A use exactly one period old does not count any more."""

    __slots__ = ("_uses", "period", "units")

    def __init__(self, period: int) -> None:
        self.period = period
        self.units = 0
        """Units in the period up to the last instant that was asked for."""
        self._uses: deque[tuple[int, int]] = deque()

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
