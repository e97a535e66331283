"""A breaker: whether a server is worth asking."""

from __future__ import annotations

import threading
from typing import Final

from headgate.clock import SECOND, SystemClock

WINDOW_US: Final = 10 * SECOND
"""Failures this far apart, from the end of one to the beginning of the next, have nothing to do with each other."""
FEWEST: Final = 3
"""So many failures open it, if they are also at least this part of what was asked since the first of them:"""
RATIO: Final = 0.5
MADE_GOOD: Final = 10
"""So many successes in a row and what was before is forgotten."""


class Breaker:
    """Closed while the server answers; open from when it mostly fails until a probe has passed.

    Nothing is counted while all is well: a failure opens a window, and only in it successes are counted too.
    """

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._lock = threading.Lock()
        self.open = False
        self.troubled = False
        """Successes matter: tell them."""
        self._last = self._failures = self._successes = self._in_a_row = 0

    def failed(self, spent: float = 0.0) -> bool:
        """Count a failure that took so many seconds; whether it was the one that opened the breaker."""
        with self._lock:
            now = self._clock.now_us()
            return self._count_failure(now - round(spent * SECOND), now)

    def _count_failure(self, began: int, now: int) -> bool:
        # The time spent in failures does not part them, or one that takes longer than the window would never add up.
        if not self.troubled or began - self._last > WINDOW_US:
            self._failures = self._successes = 0
            self.troubled = True
        self._last = now
        self._failures += 1
        self._in_a_row = 0
        opens = (
            not self.open
            and self._failures >= FEWEST
            and self._failures >= RATIO * (self._failures + self._successes)
        )  # fmt: skip
        self.open = self.open or opens
        return opens

    def succeeded(self) -> None:
        """Count a success in a troubled time."""
        self._successes += 1
        self._in_a_row += 1
        if self._in_a_row >= MADE_GOOD and not self.open:
            self.troubled = False

    def close(self) -> None:
        """A probe has passed."""
        self.open = self.troubled = False
