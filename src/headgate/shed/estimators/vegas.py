"""TCP Vegas (Brakmo and Peterson, 1995) for requests: the limit follows an estimate of the queue.

    queue = limit x (1 - shortest latency / this latency)

The numbers are those of `VegasLimit` in Netflix's concurrency-limits: a queue below alpha raises the limit, one above
beta lowers it, both grow with the logarithm of the limit. The shortest latency is forgotten now and then.
"""

from __future__ import annotations

import math
from random import Random

from headgate.permit import Outcome

PROBE = 30
"""The shortest latency is forgotten after about this many samples for each request of the limit."""


def _log10(limit: float) -> int:
    return max(1, int(math.log10(int(limit))))


class Vegas:
    """The limit by which three to six requests wait, times the logarithm of the limit."""

    def __init__(self, initial: int = 20, least: int = 1, most: int = 1000, random: Random | None = None) -> None:
        self.limit = self.undipped = initial
        self.base, self.dips, self.idle_until = 0.0, False, 0
        self._estimate = float(initial)
        self._least, self._most = least, most
        self._random = random or Random()  # noqa: S311 - spreads probes, keeps no secret
        self._shortest = 0
        self._samples = 0
        self._jitter = self._random.uniform(0.5, 1)

    def begin(self, now: int, in_flight: int) -> int:
        """Mark the request with the number in flight: far below the limit, its latency says nothing."""
        return in_flight

    def end(self, now: int, mark: int, latency: int, outcome: Outcome) -> None:
        """Raise or lower the limit by one sample."""
        if outcome == "ignored" or latency <= 0:
            return
        self._samples += 1
        if self._jitter * PROBE * self._estimate <= self._samples:
            self._jitter, self._samples = self._random.uniform(0.5, 1), 0
            self._shortest = latency
        elif self._shortest == 0 or latency < self._shortest:
            self._shortest = latency
        else:
            self._estimate = max(self._least, min(self._most, self._next(mark, latency, outcome == "dropped")))
            self.limit = self.undipped = int(self._estimate)

    def _next(self, in_flight: int, latency: int, dropped: bool) -> float:
        limit, step = self._estimate, _log10(self._estimate)
        queue = math.ceil(limit * (1 - self._shortest / latency))
        if dropped:
            return limit - step
        if in_flight * 2 < limit:
            return limit
        if queue <= step:
            return limit + 6 * step
        if queue < 3 * step:
            return limit + step
        return limit - step if queue > 6 * step else limit

    def refuse(self, now: int) -> None:
        """Nothing is learned from a refusal."""
