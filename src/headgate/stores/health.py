"""Health of a server or a database as its users see it: failures, and the time of commands in fixed buckets."""

from __future__ import annotations

import threading
from bisect import bisect_left
from typing import Any, Final, NamedTuple

BOUNDS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
"""Seconds. A decision has 0.05 s by default."""


class HealthReport(NamedTuple):
    """The health of a store, as this process sees it."""

    up: bool
    errors: int
    """Commands without an answer, and answers that are errors; commands that were never sent are not among them."""
    seconds: dict[str, Any] | None
    """The time of commands: `buckets` (upper bound and count, not summed), `sum`, `count`; only of a server."""


class Health:
    """Counts of one store in this process; they only grow."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._buckets = [0] * (len(BOUNDS) + 1)
        self._seconds = 0.0
        self._errors = 0

    def took(self, seconds: float) -> None:
        """Count a command that was answered."""
        with self._lock:
            self._buckets[bisect_left(BOUNDS, seconds)] += 1
            self._seconds += seconds

    def failed(self) -> None:
        """Count a command without an answer, or an answer that is an error."""
        with self._lock:
            self._errors += 1

    def report(self, up: bool, timed: bool = True) -> HealthReport:
        """Return a report, with the times of commands if they are `timed`."""
        with self._lock:
            buckets = [list(pair) for pair in zip((*BOUNDS, None), self._buckets, strict=True)]
            times = {"buckets": buckets, "sum": self._seconds, "count": sum(self._buckets)}
            return HealthReport(up, self._errors, times if timed else None)
