"""What is made once and kept, within bounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class ClearedWhenFull(dict[K, V]):
    """`cache[name]` is what was made for a name, or is made now and kept, `most` at once.

    After a clearing, the few names that are asked for again and again are made once more: that costs less than to note,
    at every lookup, which they are. A hit is a lookup in a dict.
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
        """What was made elsewhere, where the name alone does not tell how."""
        if len(self) >= self._most:
            self.clear()
        self[name] = made
        return made
