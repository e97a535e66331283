"""Gradient2, of Netflix's concurrency-limits: the limit follows the ratio of long and present latency.

    limit = 0.8 limit + 0.2 (limit x gradient + 4),   gradient = 1.5 x long average / latency, within 0.5 to 1

The long average moves with load that lasts, and the limit drifts up with it: the known flaw.
"""

from __future__ import annotations

from headgate.permit import Outcome

WINDOW = 600
WARMUP = 10
TOLERANCE = 1.5
QUEUE = 4
SMOOTHING = 0.2


class Gradient2:
    """The limit at which latency stays near its long average."""

    def __init__(self, initial: int = 20, least: int = 20, most: int = 200) -> None:
        self.limit = self.undipped = initial
        self.base, self.dips, self.idle_until = 0.0, False, 0
        self._estimate = float(initial)
        self._least, self._most = least, most
        self._long = 0.0
        self._sum = 0.0
        self._samples = 0

    def begin(self, now: int, in_flight: int) -> int:
        """Mark the request with the number in flight: far below the limit, its latency says nothing."""
        return in_flight

    def end(self, now: int, mark: int, latency: int, outcome: Outcome) -> None:
        """Raise or lower the limit by one sample."""
        if outcome == "ignored" or latency <= 0:
            return
        if self._samples < WARMUP:
            self._samples += 1
            self._sum += latency
            self._long = self._sum / self._samples
        else:
            self._long += 2 / (WINDOW + 1) * (latency - self._long)
        long = self._long
        if long > 2 * latency:
            self._long *= 0.95
        if mark < self._estimate / 2:
            return
        gradient = max(0.5, min(1.0, TOLERANCE * long / latency))
        aim = self._estimate * gradient + QUEUE
        self._estimate += SMOOTHING * (aim - self._estimate)
        self._estimate = max(self._least, min(self._most, self._estimate))
        self.limit = self.undipped = int(self._estimate)

    def refuse(self, now: int) -> None:
        """Nothing is learned from a refusal."""
