"""Time, as whole microseconds since the UTC epoch.

A decision reads the clock once. The system clock is the wall clock at start plus a counter that never steps and that
goes on while the machine sleeps (CLOCK_MONOTONIC does not on Linux), so windows stay aligned to UTC and an NTP step
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
    """Microseconds as people read them: whole seconds where they are, and never a power of ten."""
    return f"{us / SECOND:.6f}".rstrip("0").rstrip(".")


class Clock(Protocol):
    """Anything that tells the time; `headgate.testing.ManualClock` is one that waits to be told."""

    def now_us(self) -> int:
        """Whole microseconds since the UTC epoch."""
        ...


def _steady_clock_id() -> int | None:
    """The counter that also runs through suspend: CLOCK_BOOTTIME on Linux, mach_continuous_time on macOS."""
    for name in ("CLOCK_BOOTTIME", "CLOCK_MONOTONIC_RAW"):
        clock_id: int | None = getattr(time, name, None)
        if clock_id is not None:
            return clock_id
    return None


STEADY_CLOCK_ID: Final = _steady_clock_id()


def steady_ns() -> int:
    """Nanoseconds that never step backwards."""
    return time.monotonic_ns() if STEADY_CLOCK_ID is None else time.clock_gettime_ns(STEADY_CLOCK_ID)


class WallClock:
    """The machine's own clock, as it is set now: for instants that are told to others, and never for decisions."""

    def now_us(self) -> int:
        """Whole microseconds since the UTC epoch."""
        return time.time_ns() // 1_000


class SystemClock:
    """Wall clock at construction + the steady counter since."""

    __slots__ = ("anchor_ns",)

    def __init__(self) -> None:
        # What to add to the steady counter. The native engine reads the counter itself and adds the same number.
        self.anchor_ns = time.time_ns() - steady_ns()

    def now_us(self) -> int:
        """Whole microseconds since the UTC epoch."""
        return (steady_ns() + self.anchor_ns) // 1_000
