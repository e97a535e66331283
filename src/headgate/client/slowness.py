"""The slowness of a key: it is paced below a known limit, because its server refuses all the same.

Requests that leave evenly do not arrive evenly, and other programs may spend of the same limit. After a refusal, and at
most once a second, the pace of the key becomes 98 % of what it was, but at least 70 % of the limit's. Every process of
the store hears of the refusal by its pause, and slows the pace that they share; a rate of its own would hold each
process to the part that it happened to have. The pace comes back slowly at first and faster with time.
"""

from __future__ import annotations

import threading
from typing import Final

from headgate.clock import SECOND
from headgate.forks import after_fork

STEP: Final = 0.98
LEAST: Final = 0.7
GROWTH: Final = 0.0002
"""The first growth a second; it is twice as fast after each `DOUBLES` seconds."""
DOUBLES: Final = 20


class Slowness:
    """The slowness of one key in this process; safe for threads. Times are in microseconds."""

    def __init__(self) -> None:
        self.share = 1.0
        """The part of the pace that is used."""
        self._refused_us = self._fell_us = self._grew_us = 0
        self._renew()
        after_fork(self._renew)

    def _renew(self) -> None:
        self._lock = threading.Lock()

    def refused(self, now: int) -> None:
        """Slow down after a refusal."""
        with self._lock:
            self._refused_us = now
            if self.share == 1 or now - self._fell_us >= SECOND:
                self.share = max(LEAST, STEP * self.share)
                self._fell_us = now

    def at(self, now: int) -> float:
        """Return the part of the pace that is used at this instant."""
        if self.share < 1 and now - max(self._grew_us, self._refused_us) >= SECOND:
            with self._lock:
                quiet = (now - self._refused_us) / SECOND
                self.share = min(1.0, self.share * (1 + GROWTH * 2 ** min(quiet / DOUBLES, 10)))
                self._grew_us = now
        return self.share
