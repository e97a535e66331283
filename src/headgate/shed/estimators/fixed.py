"""A limit that a person chose."""

from __future__ import annotations

from headgate.clock import MILLISECOND
from headgate.permit import Outcome

PAUSE = 10 * MILLISECOND


class Fixed:
    """Always the same limit."""

    def __init__(self, limit: int) -> None:
        self.limit = self.undipped = limit
        self.base, self.dips, self.idle_until = 0.0, False, 0

    def begin(self, now: int, in_flight: int) -> int:
        """Nothing is learned, and a latency now and then is enough for the statistics."""
        self.idle_until = now + PAUSE
        return 0

    def end(self, now: int, mark: int, latency: int, outcome: Outcome) -> None:
        """Nothing is learned from a request that ends."""

    def refuse(self, now: int) -> None:
        """Nothing is learned from a refusal."""
