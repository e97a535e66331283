"""Space-Saving: the keys that come most often, in a fixed number of places (Metwally, Agrawal and El Abbadi, 2005).

A key that is not listed takes the place of a key with the least count, and starts with that count as its error: its
true count is at most `count`, and at least `count - error`. A key with more than 1 in `places` of all is always listed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappush, heapreplace
from typing import Final

PLACES: Final = 1_000


@dataclass(slots=True)
class Listed:
    """A key of the list."""

    rule: str
    key: str
    count: int
    """The most that the key can have come; at least `count - error`."""
    error: int
    since: float
    """The time at which the key took its place."""


class _Place:
    """A place of the list."""

    __slots__ = ("count", "error", "since")

    def __init__(self, count: int, error: int, since: float) -> None:
        self.count = count
        self.error = error
        self.since = since


class Sketch:
    """Counts of keys by rule, in a fixed number of places."""

    def __init__(self, places: int = PLACES, clock: Callable[[], float] = time.time) -> None:
        self._places = places
        self._clock = clock
        self.forget()

    def forget(self) -> None:
        """Forget every key; in a forked child, another thread may hold the lock."""
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str], _Place] = {}
        self._order: list[tuple[int, int, tuple[str, str]]] = []
        """A heap of all keys by a count that each had: one that was counted since is moved when it comes to the top."""
        self._number = 0

    def add(self, rule: str, key: str) -> None:
        """Count a key once."""
        name = (rule, key)
        with self._lock:
            place = self._known.get(name)
            if place is not None:  # nearly always: the rest takes longer
                place.count += 1
            elif len(self._known) < self._places:
                self._known[name] = _Place(1, 0, self._clock())
                heappush(self._order, self._entry(1, name))
            else:
                least, last = self._least()
                del self._known[last]
                self._known[name] = _Place(least + 1, least, self._clock())
                heapreplace(self._order, self._entry(least + 1, name))

    def _entry(self, count: int, name: tuple[str, str]) -> tuple[int, int, tuple[str, str]]:
        """Return an entry of the heap. Its number lets the key that waited longest go first."""
        self._number += 1
        return count, self._number, name

    def _least(self) -> tuple[int, tuple[str, str]]:
        """Return the least count, and a key that has it, at the top of the heap."""
        while True:
            count, _, name = self._order[0]
            now = self._known[name].count
            if now == count:
                return count, name
            heapreplace(self._order, self._entry(now, name))

    def listed(self) -> list[Listed]:
        """Return the keys, the most frequent first."""
        with self._lock:
            known = [
                Listed(rule, key, place.count, place.error, place.since) for (rule, key), place in self._known.items()
            ]
        known.sort(key=lambda one: (-one.count, one.rule, one.key))
        return known

    @property
    def floor(self) -> int:
        """The most that a key can have come that is not listed."""
        with self._lock:
            return self._least()[0] if len(self._known) >= self._places else 0
