"""Counts over the last seconds, in slots of equal width: the memory is fixed, whatever is counted."""

from __future__ import annotations

from itertools import count


class Counts:
    """The sum of what was added in the last `slots` x `width` microseconds, the current slot included.

    An addition is forgotten after more than (`slots` - 1) x `width`, and after at most `slots` x `width`. A clock that
    goes back adds to the newest slot.
    """

    __slots__ = ("_newest", "_slots", "_sum", "_width")

    def __init__(self, slots: int, width: int) -> None:
        self._slots = [0] * slots
        self._width = width
        self._newest = 0
        self._sum = 0

    def add(self, now: int, amount: int = 1) -> None:
        """Count some more."""
        if now // self._width > self._newest:
            self._advance(now)
        self._slots[self._newest % len(self._slots)] += amount
        self._sum += amount

    def total(self, now: int) -> int:
        """Return the sum of the slots that have not passed."""
        if now // self._width > self._newest:
            self._advance(now)
        return self._sum

    def _advance(self, now: int) -> None:
        slot, slots = now // self._width, self._slots
        for passed in range(max(self._newest, slot - len(slots)) + 1, slot + 1):
            place = passed % len(slots)
            self._sum -= slots[place]
            slots[place] = 0
        self._newest = slot


class Counter:
    """A count that threads add to without a lock."""

    __slots__ = ("_numbers", "_read", "add")

    def __init__(self) -> None:
        self._numbers = count()
        self.add = self._numbers.__next__
        """Adds 1, in one step of the interpreter."""
        self._read = 0

    def since(self) -> int:
        """Return how much was added since this was last asked; one thread at a time may ask."""
        now = next(self._numbers)  # the number can only be read by counting
        before, self._read = self._read, now + 1
        return now - before
