"""The callers of one key that wait, and which of them is next.

Without an order, callers go first come, first served. With one, those of the highest priority go first, and among them
the shares of `fair_by` are as their weights. One turn in ten is for the caller that has waited longest, so that no
priority starves another.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from headgate.limiter.caller import Caller, Order
from headgate.waiting import FairQueue

FOR_THE_OLDEST: Final = 10
"""One turn in this many goes to the caller that has waited longest, if priorities differ."""
MOST_PRIORITIES: Final = 64
"""The most priorities whose shares are kept while none of their callers waits: an app may number its callers."""
PLAIN: Final = Order()
"""The order of a caller that has none, among others that do."""


class KeyQueue:
    """Callers that wait; the `head` asks the store."""

    __slots__ = ("_ordered", "_waiting", "head")

    def __init__(self) -> None:
        self.head: Caller | None = None
        self._waiting: OrderedDict[Caller, None] = OrderedDict()
        self._ordered: _Ordered | None = None

    def __len__(self) -> int:
        behind = self._waiting if self._ordered is None else self._ordered
        return (self.head is not None) + len(behind)

    def add(self, caller: Caller) -> None:
        """Let a caller wait; the first is the head."""
        if self.head is None:
            self.head = caller
        elif self._ordered is not None:
            self._ordered.add(caller)
        elif caller.order is None:
            self._waiting[caller] = None
        else:
            self._ordered = _Ordered()
            for each in (*self._waiting, caller):
                self._ordered.add(each)
            self._waiting.clear()

    def remove(self, caller: Caller) -> None:
        """Remove a caller that goes or gives up; after the head, the next one is chosen."""
        if caller is self.head:
            self.head = self._next()
        elif self._ordered is not None:
            self._ordered.remove(caller)
        else:
            del self._waiting[caller]

    def _next(self) -> Caller | None:
        if self._ordered is not None:
            return self._ordered.take()
        return self._waiting.popitem(last=False)[0] if self._waiting else None


class _Ordered:
    """Callers by priority, fair inside of each."""

    def __init__(self) -> None:
        self._queues: dict[int, FairQueue[Caller]] = {}
        """Queues by priority; an empty one stays, with the shares that were served, if there are few."""
        self._by_arrival: OrderedDict[Caller, None] = OrderedDict()
        self._turns = 0

    def __len__(self) -> int:
        return len(self._by_arrival)

    def add(self, caller: Caller) -> None:
        priority, fair_by, weight = caller.order or PLAIN
        self._by_arrival[caller] = None
        self._queues.setdefault(priority, FairQueue()).add(fair_by, weight, caller)

    def remove(self, caller: Caller) -> None:
        """Remove a caller that gives up."""
        priority, fair_by, _ = caller.order or PLAIN
        self._queues[priority].remove(fair_by, caller)
        del self._by_arrival[caller]
        self._tidy(priority)

    def take(self) -> Caller | None:
        """Remove the caller that is next, and count its cost for its share."""
        if not self._by_arrival:
            return None
        occupied = [priority for priority, queue in self._queues.items() if queue.size]
        self._turns = (self._turns + 1) % FOR_THE_OLDEST
        if len(occupied) > 1 and not self._turns:
            caller, taken = next(iter(self._by_arrival)), 0
            self.remove(caller)
        else:
            first = self._queues[max(occupied)].take(newest=False)
            assert first is not None  # noqa: S101 - the queue is not empty
            caller, taken = first, 1
            del self._by_arrival[caller]
        priority, fair_by, _ = caller.order or PLAIN
        if priority in self._queues:
            self._queues[priority].charge(fair_by, max(1, caller.units) - taken)
            self._tidy(priority)
        return caller

    def _tidy(self, priority: int) -> None:
        if len(self._queues) > MOST_PRIORITIES and not self._queues[priority].size:
            del self._queues[priority]
