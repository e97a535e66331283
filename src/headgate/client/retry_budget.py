"""A budget of retries: at most a tenth of the requests, and always a few, so that retries never become the load.

If a server fails half of its requests, four attempts each would send it almost twice the load, at the worst time. A
retry counts from the decision to wait until 10 s after it was sent: a crowd of sleeping retries is load to come.
A retry after a 429 spends nothing; limits pace it.
"""

from __future__ import annotations

import threading
from typing import Final

from headgate.client.arguments import checked_count, checked_share
from headgate.client.counts import Counts
from headgate.clock import SECOND
from headgate.forks import after_fork

SHARE: Final = 0.1
LEAST: Final = 3
WINDOW: Final = 10
"""Seconds in which requests and retries are compared."""


class RetryBudget:
    """The requests and retries of the last seconds, for one server; safe for threads. Times are in microseconds.

    In any 10 s, at most max(`least`, `share` x requests) retries are begun, those that still wait included.
    """

    def __init__(self, share: float = SHARE, least: int = LEAST) -> None:
        self._share, self._least = checked_share("share", share), checked_count("least", least, 0)
        self._requests = Counts(WINDOW, SECOND)
        self._sent = Counts(WINDOW + 1, SECOND)  # forgotten after 10 s and not before; requests after 10 s at most
        self._renew()
        after_fork(self._renew)

    def _renew(self) -> None:
        """A forked child has none of the callers that wait."""
        self._waiting = 0
        self._lock = threading.Lock()

    def count_request(self, now: int, number: int = 1) -> None:
        """Count the first attempts of requests."""
        with self._lock:
            self._requests.add(now, number)

    def begin(self, now: int) -> bool:
        """Return whether a retry may wait for its turn. If so, it ends with `send` or `cancel`."""
        with self._lock:
            used = self._waiting + self._sent.total(now)
            if used + 1 > max(self._least, self._share * self._requests.total(now)):
                return False
            self._waiting += 1
            return True

    def send(self, now: int) -> None:
        """Count a retry that has waited and is sent now."""
        with self._lock:
            self._waiting -= 1
            self._sent.add(now)

    def cancel(self) -> None:
        """Forget a retry that is not sent."""
        with self._lock:
            self._waiting -= 1
