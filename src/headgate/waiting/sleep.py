"""Wait in a thread, and the check of a time to wait."""

from __future__ import annotations

import sys
import time
import warnings

from headgate.clock import SECOND, Clock
from headgate.errors import InvalidCall

LONGEST_SLEEP_US = 3600 * SECOND


def checked_wait(seconds: float) -> int:
    """Return a time to wait in microseconds, or raise `InvalidCall`."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds >= 0:
        raise InvalidCall(f"a time to wait must be a number of seconds from 0, or None; got {seconds!r}")
    return round(min(seconds, 1e9) * SECOND)


_warned = False


def warn_if_in_loop() -> None:
    """Warn once, if a thread that runs an event loop is about to sleep: every task of the loop would sleep with it."""
    global _warned
    asyncio = sys.modules.get("asyncio")
    if _warned or asyncio is None or asyncio._get_running_loop() is None:
        return
    _warned = True
    warnings.warn(
        "a Limiter waits in a running event loop, which stops all of its tasks: use AsyncLimiter and `await` there",
        RuntimeWarning,
        stacklevel=_level_of_caller(),
    )


def _level_of_caller() -> int:
    """Return the place in the stack of the line that called Headgate, which a warning should name."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("headgate."):
        level, frame = level + 1, frame.f_back
    return level


def sleep_until(clock: Clock, at_us: int) -> None:
    """Return at the instant or just after it, never before. A manual clock is moved to the instant."""
    move = getattr(clock, "sleep_until", None)
    if move is not None:
        move(at_us)
        return
    while (left := at_us - clock.now_us()) > 0:  # one sleep, unless the wait is longer than the longest sleep
        time.sleep(min(left, LONGEST_SLEEP_US) / SECOND)
