"""The places where requests wait for a permit: the highest class first, and fair inside a class."""

from __future__ import annotations

from typing import Generic, TypeVar

from headgate.clock import MILLISECOND
from headgate.waiting import FairQueue

T = TypeVar("T")
NEWEST_AFTER = 100 * MILLISECOND
"""A room that has not been empty for this long does not empty by itself. The newest requests go first then: the oldest
have waited so long that their callers may have left."""
BRIEF = 10 * MILLISECOND
"""A room that is empty for less than this counts as not empty: permits are often returned together, and a lasting load
fills the places again at once. The oldest would go first for a while after each such moment, behind a full room."""


class WaitingRoom(Generic[T]):
    """Requests that wait, in one `FairQueue` for each class."""

    def __init__(self, classes: int) -> None:
        self._queues: list[FairQueue[T]] = [FairQueue() for _ in range(classes)]
        self._occupied_since = 0
        self._empty_since = -BRIEF
        self.size = 0

    def add(self, now: int, rank: int, tenant: str, weight: float, request: T) -> None:
        """Let a request wait."""
        if not self.size and now - self._empty_since >= BRIEF:
            self._occupied_since = now
        self.size += 1
        self._queues[rank].add(tenant, weight, request)

    def take(self, now: int, ranks: int) -> T | None:
        """Remove the request that is served next, of the first `ranks` classes."""
        for queue in self._queues[:ranks]:
            if queue.size:
                self._leave(now)
                return queue.take(newest=self._newest_first(now))
        return None

    def drop(self, now: int) -> T | None:
        """Remove the request that would be served last: of the lowest class, of the tenant with the longest queue."""
        for queue in reversed(self._queues):
            if queue.size:
                self._leave(now)
                return queue.drop(newest=not self._newest_first(now))
        return None

    def remove(self, now: int, rank: int, tenant: str, request: T) -> bool:
        """Remove a request that gave up. False if it does not wait any more."""
        removed = self._queues[rank].remove(tenant, request)
        if removed:
            self._leave(now)
        return removed

    def _leave(self, now: int) -> None:
        self.size -= 1
        if not self.size:
            self._empty_since = now

    def _newest_first(self, now: int) -> bool:
        return now - self._occupied_since >= NEWEST_AFTER
