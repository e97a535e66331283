"""Additive increase, multiplicative decrease: the rule of TCP (Chiu and Jain, 1989), by drops alone.

The numbers are those of `AIMDLimit` in Netflix's concurrency-limits.
"""

from __future__ import annotations

from headgate.clock import SECOND
from headgate.permit import Outcome

BACKOFF = 0.9
SLOW = 5 * SECOND
"""A request that takes longer counts as dropped."""


class AIMD:
    """One more after each success at half the limit or above; a tenth less after each drop."""

    def __init__(self, initial: int = 20, least: int = 20, most: int = 200) -> None:
        self.limit = self.undipped = initial
        self.base, self.dips, self.idle_until = 0.0, False, 0
        self._least, self._most = least, most

    def begin(self, now: int, in_flight: int) -> int:
        """Mark the request with the number in flight, by which its success is weighed."""
        return in_flight

    def end(self, now: int, mark: int, latency: int, outcome: Outcome) -> None:
        """Raise or lower the limit by one sample."""
        if outcome == "ignored":
            return
        if outcome == "dropped" or latency > SLOW:
            limit = int(self.limit * BACKOFF)
        elif mark * 2 >= self.limit:
            limit = self.limit + 1
        else:
            return
        self.limit = self.undipped = max(self._least, min(self._most, limit))

    def refuse(self, now: int) -> None:
        """Nothing is learned from a refusal."""
