"""A cache with a bound: values are made once and kept until it is full."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class ClearedWhenFull(dict[K, V]):
    """A dict of at most `most` values; `cache[name]` makes the value of a new name, and a full cache is cleared first.

    After that the names in use are made once more, which costs less than noting the use of each name at every lookup. A
    hit is a lookup in a dict.
    """

    __slots__ = ("_make", "_most")

    def __init__(self, most: int, make: Callable[[K], V] | None = None) -> None:
        super().__init__()
        self._most = most
        self._make = make

    def __missing__(self, name: K) -> V:
        if self._make is None:
            raise KeyError(name)
        return self.keep(name, self._make(name))

    def keep(self, name: K, made: V) -> V:
        """Keep a value that the caller has made, and return it."""
        if len(self) >= self._most:
            self.clear()
        self[name] = made
        return made
