"""A limit that a person chose."""

from __future__ import annotations

from headgate.permit import Outcome


class Fixed:
    """Always the same limit."""

    def __init__(self, limit: int) -> None:
        self.limit = self.undipped = limit
        self.base, self.dips = 0.0, False

    def begin(self, now: int, in_flight: int) -> int:
        """Nothing is learned from a request that begins."""
        return 0

    def end(self, now: int, mark: int, latency: int, outcome: Outcome) -> None:
        """Nothing is learned from a request that ends."""

    def refuse(self, now: int) -> None:
        """Nothing is learned from a refusal."""
