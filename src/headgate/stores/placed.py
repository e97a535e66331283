"""Bound limits whose windows have seams of their own: the calendar's.

A step knows no calendar. Its parameters have the instants at which the windows around now begin, so the limits are
bound again when their window is over. Between two seams a decision compares two integers, and no database of zones is
read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headgate.clock import Clock
from headgate.engine import TAKE
from headgate.limit import Limit
from headgate.stores.contract import Costs, Keys, Marks

Limits = tuple[Limit, ...]


def bind_placed(clock: Clock, limits: Limits, bind: Callable[[Limits], Any]) -> Any:  # noqa: ANN401 - of either kind
    """Bind limits; those with windows of the calendar are bound again for each window."""
    return PlacedLimits(clock, limits, bind) if any(limit.calendar for limit in limits) else bind(limits)


class PlacedLimits:
    """Limits that are bound for the windows around now. Methods return what those of the bound limits return."""

    def __init__(self, clock: Clock, limits: Limits, bind: Callable[[Limits], Any]) -> None:
        self.limits = limits
        self._clock = clock
        self._bind = bind
        self._current: tuple[int, int, Any] = (0, 0, None)
        """From when and until when the limits are bound as they are, and the bound limits."""

    def run(self, keys: Keys, costs: Costs, mode: int = TAKE, wait: int = 0) -> Any:  # noqa: ANN401
        """Ask every limit in one step, then charge all or none."""
        return self._bound().run(keys, costs, mode, wait)

    def give(self, keys: Keys, units: Costs, marks: Marks) -> Any:  # noqa: ANN401
        """Give back units that were charged at these marks."""
        return self._bound().give(keys, units, marks)

    def clear(self, key: str) -> Any:  # noqa: ANN401
        """Forget a key under every limit."""
        return self._bound().clear(key)

    def holders(self, key: str) -> Any:  # noqa: ANN401
        """Return the permits in flight of a key."""
        return self._bound().holders(key)

    def _bound(self) -> Any:  # noqa: ANN401
        now = self._clock.now_us()
        since, until, bound = self._current  # read once: another thread may replace them
        if not since <= now < until:
            since, until, bound = self._current = self._place(now)
        return bound

    def _place(self, now: int) -> tuple[int, int, Any]:
        seams = [limit.calendar.seams(now) if limit.calendar else () for limit in self.limits]
        each = zip(self.limits, seams, strict=True)
        bound = self._bind(tuple([limit._placed(some) if some else limit for limit, some in each]))
        return max(some[1] for some in seams if some), min(some[2] for some in seams if some), bound
