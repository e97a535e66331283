"""Health of a server as its users see it: failures, and the time of commands in fixed buckets."""

from __future__ import annotations

import threading
from bisect import bisect_left
from typing import Final

BOUNDS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
"""Seconds. A decision has 0.05 s by default."""


class Health:
    """Counts of one store in this process; they only grow."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._buckets = [0] * (len(BOUNDS) + 1)
        self._seconds = 0.0
        self.errors = 0

    def took(self, seconds: float) -> None:
        """Count a command that the server answered."""
        with self._lock:
            self._buckets[bisect_left(BOUNDS, seconds)] += 1
            self._seconds += seconds

    def failed(self) -> None:
        """Count a command without an answer, or an answer that is an error."""
        with self._lock:
            self.errors += 1

    def seconds(self) -> tuple[list[int], float]:
        """Return the commands in each bucket, and the sum of their times."""
        with self._lock:
            return list(self._buckets), self._seconds
