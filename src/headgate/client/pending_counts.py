"""Counts of requests that go at once and pass, which is most of them: kept for half a second, then told together.

Six counts have each request that passes: for the retry budget, the throttle, and the rate that refusals would tell. All
of them forget in steps of half a second or a multiple, so they are the same if they are told once in that time. An
answer is counted in the half second of the last request that was sent.
"""

from __future__ import annotations

import threading

from headgate.client.counts import Counter
from headgate.client.rate_finder import WIDTH, RateFinder
from headgate.client.retry_budget import RetryBudget
from headgate.client.throttle import Throttle
from headgate.forks import after_fork


class PendingCounts:
    """The counts of one key that were not told yet; safe for threads. Times are in microseconds."""

    def __init__(self, finder: RateFinder, retry_budget: RetryBudget, throttle: Throttle) -> None:
        self._finder, self._retry_budget, self._throttle = finder, retry_budget, throttle
        self._sent, self._passed = Counter(), Counter()
        self.sent = self._sent.add
        """Counts a request that is sent, for the first time."""
        self.passed = self._passed.add
        """Counts a request that the server let pass."""
        self._at_us = self.ends_us = 0
        """The end of the half second; `begin` comes before a count that is later."""
        self._renew()
        after_fork(self._renew)

    def _renew(self) -> None:
        self._lock = threading.Lock()

    def begin(self, now: int) -> None:
        """Tell what was counted, and begin the half second of an instant."""
        with self._lock:
            self._tell()
            self._at_us, self.ends_us = now, (now // WIDTH + 1) * WIDTH

    def tell(self) -> None:
        """Tell what was counted."""
        with self._lock:
            self._tell()

    def _tell(self) -> None:
        sent, passed, at_us = self._sent.since(), self._passed.since(), self._at_us
        if sent:
            self._retry_budget.count_request(at_us, sent)
            self._finder.sent(at_us, sent)
        if passed:
            self._finder.passed(at_us, passed)
            self._throttle.count(at_us, accepted=True, number=passed)
