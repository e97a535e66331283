"""Wait in a thread."""

from __future__ import annotations

import time

from headgate.clock import SECOND, Clock

LONGEST_SLEEP_US = 3600 * SECOND


def sleep_until(clock: Clock, at_us: int) -> None:
    """Return at the instant or just after it, never before. A manual clock is moved to the instant."""
    move = getattr(clock, "sleep_until", None)
    if move is not None:
        move(at_us)
        return
    while (left := at_us - clock.now_us()) > 0:  # one sleep, unless the wait is longer than the longest sleep
        time.sleep(min(left, LONGEST_SLEEP_US) / SECOND)
