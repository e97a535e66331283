"""A cohort: the requests by which one value of the limit is measured.

The first requests that begin after a change are its members, and it closes when *all* of them have ended. A window that
is closed by completions counts the quick requests and misses the slow ones: with uneven work, its mean comes out far
too low. The mean is used, not the median: where one request in ten does most of the work, the median does not see it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from headgate.clock import SECOND
from headgate.permit import Outcome

LEAST, MOST = 60, 200
"""Members of a cohort."""
ENOUGH = 16
"""Members that are enough if more have not come within a second."""
PATIENCE = 30 * SECOND
"""A cohort is not kept open longer by members that do not end; they count as dropped."""
ERROR = 0.12
"""The standard error of the mean that a cohort is sized for, as a part of the mean."""


class Cohort:
    """Members that begin while the limit stays as it is."""

    __slots__ = (
        "_begun",
        "_close",
        "_dropped",
        "_ended",
        "_size",
        "_squares",
        "_sum",
        "admitted",
        "mark",
        "most_in_flight",
        "opened",
        "refused",
        "samples",
    )

    def __init__(self, close: Callable[[int, Cohort], None], now: int, mark: int, size: int = LEAST) -> None:
        self._close = close
        self.opened = now
        self.mark = mark
        self.samples = self.refused = self.admitted = self.most_in_flight = 0
        self._size = size
        self._begun = self._ended = self._dropped = 0
        self._sum = self._squares = 0.0

    def begin(self, now: int, in_flight: int) -> int:
        """Make a request a member if there is room, and return its mark."""
        self.admitted += 1
        if in_flight > self.most_in_flight:
            self.most_in_flight = in_flight
        if self._begun >= self._size:
            if now - self.opened > PATIENCE:
                self._dropped += self._begun - self._ended
                self._close(now, self)
            return 0
        if ENOUGH <= self._begun != self._ended and now - self.opened > SECOND:
            self._size = self._begun
            return 0
        self._begun += 1
        return self.mark

    def end(self, now: int, mark: int, latency: int, outcome: Outcome) -> None:
        """Add the sample of a request, if it is a member; the last one closes the cohort."""
        if mark != self.mark:
            return
        self._ended += 1
        if outcome == "success":
            self.samples += 1
            self._sum += latency
            self._squares += latency * latency
        elif outcome == "dropped":
            self._dropped += 1
        if self._ended == self._begun and (
            self._begun >= self._size or (self._begun >= ENOUGH and now - self.opened > SECOND)
        ):
            self._close(now, self)

    def mean(self) -> float:
        """The mean latency."""
        return self._sum / self.samples

    def variation(self) -> float:
        """The coefficient of variation of the latency."""
        if self.samples < 2:
            return 0.0
        mean = self.mean()
        return math.sqrt(max(0.0, self._squares / self.samples - mean * mean)) / mean if mean else 0.0

    def error(self) -> float:
        """The standard error of the mean, as a part of the mean."""
        return self.variation() / math.sqrt(self.samples)

    def dropped_part(self) -> float:
        """The part of the members that were dropped."""
        return self._dropped / max(1, self._dropped + self.samples)

    def ignored_part(self) -> float:
        """The part of the members that say nothing: they failed, or a rule or the fleet refused them."""
        return (self._ended - self.samples - self._dropped) / max(1, self._ended)

    def refused_part(self) -> float:
        """The part of all requests that were refused meanwhile."""
        return self.refused / max(1, self.refused + self.admitted)

    def next_size(self) -> int:
        """How many members give a mean that is as certain as it should be."""
        return max(LEAST, min(MOST, int((self.variation() / ERROR) ** 2)))
