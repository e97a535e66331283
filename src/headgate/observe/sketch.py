"""Space-Saving: the keys that come most often, in a fixed number of places (Metwally, Agrawal and El Abbadi, 2005).

A key that is not listed takes the place of a key with the least count, and starts with that count as its error: its
true count is at most `count`, and at least `count - error`. A key with more than 1 in `places` of all is always listed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

PLACES: Final = 1_000


@dataclass(frozen=True, slots=True)
class Listed:
    """A key of the list."""

    rule: str
    key: str
    count: int
    """The most that the key can have come; at least `count - error`."""
    error: int
    since: float
    """The time at which the key took its place."""


class Sketch:
    """Counts of keys by rule, in a fixed number of places."""

    def __init__(self, places: int = PLACES, clock: Callable[[], float] = time.time) -> None:
        self._places = places
        self._clock = clock
        self.forget()

    def forget(self) -> None:
        """Forget every key; in a forked child, another thread may hold the lock."""
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str], tuple[int, int, float]] = {}
        """Count, error and time of each key."""
        self._by_count: dict[int, dict[tuple[str, str], None]] = {}
        """The keys of each count: a key with the least count is found at once."""
        self._least = 1

    def add(self, rule: str, key: str) -> None:
        """Count a key once."""
        name = (rule, key)
        with self._lock:
            known = self._known.get(name)
            if known is not None:
                count, error, since = known
                self._leave(count, name)
            elif len(self._known) < self._places:
                count, error, since = 0, 0, self._clock()
                self._least = 1
            else:
                count = error = self._least
                since = self._clock()
                last = next(iter(self._by_count[count]))
                del self._known[last]
                self._leave(count, last)
            self._known[name] = (count + 1, error, since)
            self._by_count.setdefault(count + 1, {})[name] = None
            while self._least not in self._by_count:
                self._least += 1

    def _leave(self, count: int, name: tuple[str, str]) -> None:
        names = self._by_count[count]
        del names[name]
        if not names:
            del self._by_count[count]

    def listed(self) -> list[Listed]:
        """Return the keys, the most frequent first."""
        with self._lock:
            each = [Listed(*name, count, error, since) for name, (count, error, since) in self._known.items()]
        return sorted(each, key=lambda one: (-one.count, one.rule, one.key))

    @property
    def floor(self) -> int:
        """The most that a key can have come that is not listed."""
        with self._lock:
            return self._least if len(self._known) >= self._places else 0
