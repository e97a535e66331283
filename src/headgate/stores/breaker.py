"""A circuit breaker, which stops requests to a server that mostly fails."""

from __future__ import annotations

import threading
from typing import Final

from headgate.clock import SECOND, SystemClock

WINDOW_US: Final = 10 * SECOND
"""Failures further apart, from the end of one to the beginning of the next, are not counted together."""
FEWEST: Final = 3
"""The fewest failures that open the breaker."""
RATIO: Final = 0.5
"""The part of the requests since the first failure that must have failed, for the breaker to open."""
MADE_GOOD: Final = 10
"""After this number of successes in a row, earlier failures no longer count."""


class Breaker:
    """Closed while the server answers; open after it has mostly failed, until a probe has passed.

    Nothing is counted while the server is well: a failure opens a window, and successes are counted only in a window.
    """

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._lock = threading.Lock()
        self.open = False
        self.troubled = False
        """Whether a window is open, in which successes must be reported too."""
        self._last = self._failures = self._successes = self._in_a_row = 0

    def failed(self, spent: float = 0.0) -> bool:
        """Count a failure that took `spent` seconds. True if this failure opened the breaker."""
        with self._lock:
            now = self._clock.now_us()
            return self._count_failure(now - round(spent * SECOND), now)

    def _count_failure(self, began: int, now: int) -> bool:
        # The time spent in a failure does not count: failures that take longer than the window must still add up.
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
        """Count a success while a window is open."""
        self._successes += 1
        self._in_a_row += 1
        if self._in_a_row >= MADE_GOOD and not self.open:
            self.troubled = False

    def close(self) -> None:
        """Close the breaker after a probe has passed."""
        self.open = self.troubled = False
