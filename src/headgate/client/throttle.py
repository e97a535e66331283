"""Refuse here what the server would refuse anyway: a circuit breaker in degrees, with probes left.

The rule is that of "Handling overload" in Google's book on site reliability, over the last two minutes:

    p = (requests - 2 accepts) / (requests + 1), at most 0.9

Requests are all that the application asks for, those that are refused here included. While at least half of them are
accepted, none is refused here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from random import random as draw
from typing import Final

from headgate.caches import ClearedWhenFull
from headgate.client.counts import Counts
from headgate.clock import SECOND
from headgate.forks import after_fork

MULTIPLE: Final = 2
MOST: Final = 0.9
SLOTS: Final = 12
WIDTH: Final = 10 * SECOND
MOST_KEYS: Final = 4096


class _Key:
    __slots__ = ("accepts", "requests")

    def __init__(self) -> None:
        self.requests, self.accepts = Counts(SLOTS, WIDTH), Counts(SLOTS, WIDTH)

    def chance(self, now: int) -> float:
        requests = self.requests.total(now)
        return min(MOST, max(0.0, (requests - MULTIPLE * self.accepts.total(now)) / (requests + 1)))


class Throttle:
    """The requests and accepts of each key; safe for threads. Times are in microseconds."""

    def __init__(self, most_keys: int = MOST_KEYS) -> None:
        self._keys: ClearedWhenFull[str, _Key] = ClearedWhenFull(most_keys, lambda key: _Key())
        self._renew()
        after_fork(self._renew)

    def _renew(self) -> None:
        self._lock = threading.Lock()

    def chance(self, key: str, now: int) -> float:
        """Return the chance with which a request is refused now."""
        with self._lock:
            found = self._keys.get(key)
            return 0.0 if found is None else found.chance(now)

    def refuses(self, key: str, now: int, random: Callable[[], float] = draw) -> bool:
        """Count a request; return whether it is refused here."""
        with self._lock:
            found = self._keys[key]
            chance = found.chance(now)
            found.requests.add(now)
        return chance > 0 and random() < chance

    def accept(self, key: str, now: int) -> None:
        """Count a request that the server has accepted."""
        with self._lock:
            self._keys[key].accepts.add(now)
