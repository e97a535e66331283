"""Refuse here what the server would refuse anyway: a circuit breaker in degrees, with probes left.

The rule is that of "Handling overload" in Google's book on site reliability, over the last two minutes:

    p = (requests - 2 accepts) / (requests + 1), at most 0.9

Requests are all that the application asks for, those that are refused here included. While at least half of them are
accepted, none is refused here, and none before ten are known: after a single failure the rule alone would refuse every
second retry. A request counts once its outcome is known: a crowd that waits for its first answers says nothing about
the server.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from random import random as draw
from typing import Final

from headgate.client.counts import Counts
from headgate.clock import SECOND
from headgate.forks import after_fork

MULTIPLE: Final = 2
MOST: Final = 0.9
FEWEST: Final = 10
"""The fewest requests that say something about a server."""
SLOTS: Final = 12
WIDTH: Final = 10 * SECOND


class Throttle:
    """The requests and accepts of one server; safe for threads. Times are in microseconds."""

    def __init__(self) -> None:
        self._requests, self._accepts = Counts(SLOTS, WIDTH), Counts(SLOTS, WIDTH)
        self.failing_until_us = 0
        """Until this instant a failure is remembered: without one there is no chance to compute."""
        self._renew()
        after_fork(self._renew)

    def _renew(self) -> None:
        self._lock = threading.Lock()

    def chance(self, now: int) -> float:
        """Return the chance with which a request is refused now."""
        with self._lock:
            requests = self._requests.total(now)
            if requests < FEWEST:
                return 0.0
            return min(MOST, max(0.0, (requests - MULTIPLE * self._accepts.total(now)) / (requests + 1)))

    def refuses(self, now: int, random: Callable[[], float] = draw) -> bool:
        """Return whether a request is refused here; if so, it is counted."""
        chance = self.chance(now)
        refused = chance > 0 and random() < chance
        if refused:
            self.count(now, accepted=False)
        return refused

    def count(self, now: int, accepted: bool, number: int = 1) -> None:
        """Count requests that the server has accepted, or failed."""
        with self._lock:
            self._requests.add(now, number)
            if accepted:
                self._accepts.add(now, number)
            else:
                self.failing_until_us = max(self.failing_until_us, now + SLOTS * WIDTH)
