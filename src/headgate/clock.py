"""Time, as whole microseconds since the UTC epoch.

A decision reads the clock once. The system clock is the wall clock at start plus a counter that never steps and that
runs while the machine sleeps (on Linux, CLOCK_MONOTONIC does not). So windows stay aligned to UTC, and an NTP step
cannot open or close a limit.
"""

from __future__ import annotations

import time
from typing import Final, Protocol

MILLISECOND: Final = 1_000
SECOND: Final = 1_000_000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR
WEEK: Final = 7 * DAY


def write_seconds(us: int) -> str:
    """Write microseconds as decimal seconds, without trailing zeros or an exponent."""
    return f"{us / SECOND:.6f}".rstrip("0").rstrip(".")


class Clock(Protocol):
    """A source of time; `headgate.testing.ManualClock` is one that a test moves."""

    def now_us(self) -> int:
        """Return whole microseconds since the UTC epoch."""


def _steady_clock_id() -> int | None:
    """Return the counter that also runs during suspend: CLOCK_BOOTTIME on Linux, mach_continuous_time on macOS."""
    for name in ("CLOCK_BOOTTIME", "CLOCK_MONOTONIC_RAW"):
        clock_id: int | None = getattr(time, name, None)
        if clock_id is not None:
            return clock_id
    return None


STEADY_CLOCK_ID: Final = _steady_clock_id()


def steady_ns() -> int:
    """Return nanoseconds of a counter that never steps back."""
    return time.monotonic_ns() if STEADY_CLOCK_ID is None else time.clock_gettime_ns(STEADY_CLOCK_ID)


class WallClock:
    """The machine's wall clock as it is set now: for instants in responses and output, never for decisions."""

    def now_us(self) -> int:
        """Return whole microseconds since the UTC epoch."""
        return time.time_ns() // 1_000


class SystemClock:
    """The wall clock at construction, plus the steady counter since then."""

    __slots__ = ("anchor_ns",)

    def __init__(self) -> None:
        # The native engine reads the steady counter itself and adds the same offset.
        self.anchor_ns = time.time_ns() - steady_ns()

    def now_us(self) -> int:
        """Return whole microseconds since the UTC epoch."""
        return (steady_ns() + self.anchor_ns) // 1_000


class HandClock:
    """Virtual time, for experiments: the owner of the clock sets `us`. No move is checked, and no waiter is woken.

    `headgate.testing.ManualClock` is the clock for tests: it checks each move and wakes callers that wait by it.
    """

    __slots__ = ("us",)

    def __init__(self, us: int = 0) -> None:
        self.us = us

    def now_us(self) -> int:
        """Return whole microseconds since the UTC epoch."""
        return self.us
