"""Find the rate of a server from its refusals.

After a refusal, and at most once a second, the rate becomes a little less than what passed in the last 5 s, but at
least 70 % of what it was. While no refusal comes it grows, slowly at first and faster with time. So the rate stays
just below the limit, asks for more now and then, and follows a limit that rises.

The first rate is a guess: a crowd that begins is refused after some milliseconds, when a few requests say little about
a second. So the rate grows by a quarter each second until the next refusal, and then takes the last step back.

A server that counts by the minute refuses everything for a while: after that, the rate doubles each second, up to half
of what passed in two minutes.
"""

from __future__ import annotations

import threading
from typing import Final

from headgate.client.counts import Counts
from headgate.clock import SECOND
from headgate.forks import after_fork

SHARE: Final = 0.95
"""The part of what passed that is the rate after a refusal."""
LEAST_SHARE: Final = 0.7
GROWTH: Final = 0.002
"""The first growth a second; it is twice as fast after each `DOUBLES` seconds."""
DOUBLES: Final = 10
MOST_GROWTH: Final = 0.05
GUESSED_GROWTH: Final = 0.25
SLOTS: Final = 10
WIDTH: Final = SECOND // 2
LONG_SLOTS: Final = 12
LONG_WIDTH: Final = 10 * SECOND
LEAST_RATE: Final = 0.2
"""Requests a second. A server that admits fewer is asked every five seconds, by each process."""
FEWEST: Final = 10
"""The fewest requests in 5 s that tell a rate: a caller that asks now and then is not held to that."""


class RateFinder:
    """The rate of one key in this process; safe for threads. Times are in microseconds, rates are a second's."""

    def __init__(self) -> None:
        self._sent, self._passed, self._paused = (Counts(SLOTS, WIDTH) for _ in range(3))
        self._passed_for_long = Counts(LONG_SLOTS, LONG_WIDTH)
        self._first_us: int | None = None
        self._rate: float | None = None
        self.is_idle = True
        """True while there is no rate to keep to."""
        self._guessed = False
        """True from the first refusal to the next."""
        self._refused_us = self._fell_us = self._grew_us = 0
        self._in_use = False
        self._renew()
        after_fork(self._renew)

    def _renew(self) -> None:
        self._lock = threading.Lock()

    def sent(self, now: int, number: int = 1) -> None:
        """Count requests that are sent."""
        with self._lock:
            if self._first_us is None:
                self._first_us = now
            self._sent.add(now, number)

    def passed(self, now: int, number: int = 1) -> None:
        """Count requests that the server let pass."""
        with self._lock:
            self._passed.add(now, number)
            self._passed_for_long.add(now, number)

    def paused(self, now: int, seconds: float) -> None:
        """Note a pause, in which nothing can pass."""
        with self._lock:
            self._paused.add(now, round(seconds * SECOND))

    def refused(self, now: int) -> None:
        """Slow down after a refusal."""
        with self._lock:
            self._refused_us = now
            if self._rate is None:
                # What was sent, not what has passed: answers are late, so that more will.
                rate = None if self._sent.total(now) < FEWEST else self._a_second(self._sent, now)
                self._rate, self._fell_us = rate and max(LEAST_RATE, rate), now
                self.is_idle = rate is None
                self._guessed = True
            elif now - self._fell_us >= SECOND:
                passing = self._a_second(self._passed, now)
                before = self._rate
                least = before / (1 + GUESSED_GROWTH) if self._is_grown_guess else LEAST_SHARE * before
                rate = SHARE * (before if passing is None else passing)
                self._rate = max(LEAST_RATE, min(before, max(rate, least)))
                self._fell_us, self._guessed = now, False

    @property
    def _is_grown_guess(self) -> bool:
        return self._guessed and self._grew_us > self._fell_us

    def waited(self) -> None:
        """Note that a request had to wait for this rate: a rate that no request uses does not grow."""
        self._in_use = True

    def rate(self, now: int) -> float | None:
        """Return the rate at this instant; None if there was no refusal yet."""
        if self._rate is None or now - max(self._grew_us, self._refused_us) < SECOND:
            return self._rate
        with self._lock:
            if self._in_use:
                self._in_use = False
                quiet = (now - self._refused_us) / SECOND
                growth = min(MOST_GROWTH, GROWTH * 2 ** min(quiet / DOUBLES, 10))
                grown = self._rate * (1 + (GUESSED_GROWTH if self._guessed else growth))
                self._rate = max(grown, min(2 * self._rate, self._usual(now) / 2))
            self._grew_us = now
            return self._rate

    def _usual(self, now: int) -> float:
        """Return how many requests passed a second, in the last two minutes or since the first request."""
        time = min(now - (self._first_us or 0), LONG_SLOTS * LONG_WIDTH)
        return self._passed_for_long.total(now) * SECOND / max(SECOND, time)

    def sending(self, now: int) -> float | None:
        """Return how many requests are sent a second; None if that is not known."""
        with self._lock:
            return self._a_second(self._sent, now)

    def _a_second(self, counts: Counts, now: int) -> float | None:
        """Return how many were counted a second, in the last 5 s or since the first request, without pauses.

        None if too little of that time is left.
        """
        since = max(self._first_us or 0, (now // WIDTH - SLOTS + 1) * WIDTH)
        time = now - since - self._paused.total(now)
        if time < SECOND and since != self._first_us:
            return None
        return counts.total(now) * SECOND / max(SECOND, time)
