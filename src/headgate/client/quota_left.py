"""What remains of a limit, as its server tells it: other programs may spend of it too.

A window that ends at a fixed instant tells exactly how much is left until then: the rest is paced over the rest of the
time. A bucket or a sliding window tells no such instant. But as long as nobody else spends, a pace of 98 % leaves at
least 2 % of them: if less remains, others spend, and the pace is slower by the part of it that is missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headgate.client.pacing import slowed, slower
from headgate.client.server_limits import ServerLimit
from headgate.clock import MILLISECOND, SECOND
from headgate.limit import Limit

SAME_INSTANT: Final = 1_500 * MILLISECOND
"""Resets are told in whole seconds, so the same instant is told with a difference of up to a second and a half."""
WATCHED: Final = 3 * SECOND
"""A window that ends at the same instant for this long is a fixed one."""
SHORTEST: Final = 5 * SECOND
"""Closer to a reset, whole seconds are too coarse to slow down by; in a shorter window, answers come too late."""
SEEN: Final = 0.1
"""The part of a limit that must have remained once: a server without a burst tells 0 after each request."""
FEWEST: Final = 5
"""The fewest requests that tell a part: two percent of a small limit are one request or none."""
LEAST_SHARE: Final = 0.2
"""The slowest pace: only an answer tells that more remains."""


@dataclass
class _Window:
    """A window that may be fixed, as its server tells it."""

    reset_us: int
    since_us: int
    remaining: int
    until_us: int = 0
    """Until this instant the rest is spread; 0 if it is not."""
    spread: tuple[int, int] = (0, 0)
    """What remained when it was spread, and over which time."""


class QuotaLeft:
    """What remains of one limit. Times are in microseconds."""

    def __init__(self, headroom: float) -> None:
        self._headroom = headroom
        self._window: _Window | None = None
        self._most = 0
        self._share, self._share_until_us = 1.0, 0

    def hear(self, told: ServerLimit, limit: Limit | None, now_us: int) -> float:
        """Hear what remains of a limit; return for how many seconds nothing is left, or 0."""
        if told.remaining is None:
            return 0.0
        amount = told.limit or (limit.amount if limit is not None else 0)
        expected = int(self._headroom * amount)
        empty = 0.0 if told.reset is None else self._watch(told.remaining, told.reset, told.window, expected, now_us)
        self._most = max(self._most, told.remaining)
        self._share = 1.0
        if limit is not None and limit.period_us >= SHORTEST and not self._is_fixed(now_us):
            if expected >= FEWEST and told.remaining < expected and self._most >= SEEN * amount:
                self._share = max(LEAST_SHARE, told.remaining / expected)
            reset_us = limit.period_us if told.reset is None else round(told.reset * SECOND)
            self._share_until_us = now_us + min(limit.period_us, reset_us)
        return empty

    def slow_until_us(self, now_us: int) -> int:
        """Return the instant until which the pace is slower; 0 if it is not slower now."""
        fixed = self._window  # read once: another thread may hear an answer meanwhile
        until_us = max(self._share_until_us if self._share < 1 else 0, fixed.until_us if fixed is not None else 0)
        return until_us if now_us < until_us else 0

    def pace(self, pace: Limit, now_us: int) -> Limit:
        """Return a pace as slow as what remains asks for."""
        fixed = self._window
        if fixed is not None and now_us < fixed.until_us:
            least = -(-pace.period_us // (fixed.until_us - now_us))  # no call is charged beyond the end of the window
            slow = slowed(pace, *fixed.spread)
            return slow if slow.amount >= least else slow.replace(amount=min(least, pace.amount))
        return slower(pace, self._share) if now_us < self._share_until_us else pace

    def _is_fixed(self, now_us: int) -> bool:
        window = self._window
        return window is not None and now_us - window.since_us >= WATCHED

    def _watch(self, remaining: int, reset: float, window: float | None, slack: int, now_us: int) -> float:
        """Look whether the window ends at a fixed instant; if it does, spread what remains until then.

        Answers overtake each other, so a little more may remain than the answer before has told.
        """
        left_us = round(reset * SECOND)
        if window is not None and left_us > window * SECOND + SAME_INSTANT:
            self._window = None  # a window that slides over two: part of it comes back sooner
            return 0.0
        ends_us = now_us + left_us
        seen = self._window
        if seen is None or abs(ends_us - seen.reset_us) > SAME_INSTANT or remaining > seen.remaining + slack:
            self._window = _Window(ends_us, now_us, remaining)
            return reset if seen is None and remaining == 0 and left_us >= SHORTEST else 0.0
        seen.remaining = remaining = min(seen.remaining, remaining)
        if not self._is_fixed(now_us) or left_us < SHORTEST:
            return 0.0
        if remaining == 0:
            return reset
        seen.until_us, seen.spread = ends_us, (remaining, left_us)
        return 0.0
