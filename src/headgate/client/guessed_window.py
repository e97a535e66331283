"""The window of a limit whose server tells its amount and its resets only: the shortest common one that these fit into.

A reset is told late now and then, for instance against the `Date` of a busy server: then a longer window is guessed.
A window that is as long as the guess tells such a reset each time it begins: a guess that is not confirmed twice over
its time, although the server answers, is given up for the longest that was.
"""

from __future__ import annotations

from typing import Final

from headgate.clock import DAY, HOUR, MINUTE, SECOND, WEEK

COMMON: Final = (SECOND, 10 * SECOND, MINUTE, 10 * MINUTE, HOUR, DAY, WEEK)
SLACK: Final = 3 * SECOND
"""Resets are later than the end of their window: rounded up or a second late, as slowapi tells them, and read against a
`Date` that is cut to whole seconds and that servers write once a second."""
FEWEST: Final = 20
"""The fewest answers without such a reset that say something: a server that is not asked confirms nothing."""


class GuessedWindow:
    """The guess for one limit. Times are in microseconds."""

    def __init__(self) -> None:
        self._window = self._confirmed_us = 0
        self._longest_since = self._answers = 0

    def hear(self, reset_us: int, now_us: int) -> int | None:
        """Return the window, after an answer that tells this reset; None if no window is known."""
        fitting = next((each for each in COMMON if reset_us - SLACK <= each), None) if reset_us else None
        if fitting is None:
            return self._window or None
        self._longest_since = max(self._longest_since, fitting)
        self._answers += 1
        forgotten = self._answers > FEWEST and now_us - self._confirmed_us > 2 * self._window
        if fitting >= self._window or forgotten:
            self._window, self._confirmed_us = self._longest_since, now_us
            self._longest_since = self._answers = 0
        return self._window
