"""Caches with a bound: one is cleared when it is full, one withstands a flood of paths."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

MOST_PATHS: Final = 4096
"""The most paths in each of two generations."""
LONGEST_PATH: Final = 256
"""The most characters of a cached path."""
_UNKNOWN: Final = object()
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


class PathCache(dict[tuple[str, str], V]):
    """`cache[method, path]`, as clients send them, returns the cached result, or finds and caches it.

    A full table becomes the old generation, and a new one begins. A path that is requested again moves to the new one,
    so a flood of paths that are requested only once evicts only others of that kind.
    """

    __slots__ = ("_before", "_find")

    def __init__(self, find: Callable[[str, str], V]) -> None:
        super().__init__()
        self._find = find
        self._before: dict[tuple[str, str], V] = {}

    def __missing__(self, asked: tuple[str, str]) -> V:
        found = self._before.get(asked, _UNKNOWN)
        if found is _UNKNOWN:
            found = self._find(*asked)
        if len(asked[1]) <= LONGEST_PATH:
            if len(self) >= MOST_PATHS:
                self._before = dict(self)
                self.clear()
            self[asked] = found  # type: ignore[assignment]
        return found  # type: ignore[return-value]
