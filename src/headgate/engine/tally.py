"""Tally: counts of decisions, made where decisions are made and read when somebody asks. tally.pxi is its twin."""

from __future__ import annotations

import threading
from typing import Final

from headgate.algorithms import NEVER
from headgate.decision import Decision

TALLIED: Final = 8
ALLOWED, REFUSED, NEVER_FITS, DEGRADED, IN_FLIGHT = range(5)
"""The numbers of a limiter; `DEGRADED` are among the first three, and `IN_FLIGHT` falls again."""


class Tally:
    """Eight numbers of one limiter or of one rule, in this process."""

    __slots__ = ("__weakref__", "_lock", "_numbers")

    def __init__(self) -> None:
        self.forget()

    def add(self, at: int, more: int = 1) -> None:
        """Add to one of the numbers."""
        if not 0 <= at < TALLIED:
            raise IndexError(at)
        with self._lock:
            self._numbers[at] += more

    def values(self) -> tuple[int, ...]:
        """Return all numbers, as of one instant."""
        with self._lock:
            return tuple(self._numbers)

    def forget(self) -> None:
        """Begin at zero, in a forked child: the parent keeps its counts, and another thread may hold its lock."""
        self._lock = threading.Lock()
        self._numbers = [0] * TALLIED

    def count(self, decision: Decision, holds: bool = False) -> None:
        """Count the answer that a caller of a limiter got; `holds`: an admitted caller is in flight from now on."""
        at = ALLOWED if decision.allowed else NEVER_FITS if decision.retry_us == NEVER else REFUSED
        with self._lock:
            self._numbers[at] += 1
            if holds and decision._holds_permits:
                decision._held = True
                self._numbers[IN_FLIGHT] += 1
            if decision.degraded:
                self._numbers[DEGRADED] += 1

    def end(self, decision: Decision) -> None:
        """Count that a caller is no longer in flight, once."""
        with self._lock:
            if decision._held:
                decision._held = False
                self._numbers[IN_FLIGHT] -= 1
