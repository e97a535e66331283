"""Caches with a bound: one is cleared when it is full, one withstands a flood of paths."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

MOST_PATHS: Final = 4096
"""The most paths, of all methods, in each of two generations."""
MOST_METHODS: Final = 32
"""The most methods whose paths are cached."""
COMMON: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "WEBSOCKET", "MESSAGE"})
"""Methods that stay among them when a new generation begins."""
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


class PathCache(dict[str, "PathTable[V]"]):
    """`cache[method][path]`, as clients send them, returns the cached result, or finds and caches it.

    When `MOST_PATHS` are cached, they become the old generation, and a new one begins. A path that is requested again
    moves to the new one, so a flood of paths that are requested only once evicts only others of that kind.

    Each method has its own table, as two lookups of a str take half the time of one that makes and hashes a tuple.
    """

    __slots__ = ("find", "kept")

    def __init__(self, find: Callable[[str, str], V]) -> None:
        super().__init__()
        self.find = find
        self.kept = 0
        """The number of paths in this generation."""
        for method in COMMON:
            self[method] = PathTable(self, method)

    def __missing__(self, method: str) -> PathTable[V]:
        table = PathTable(self, method)
        if len(self) < MOST_METHODS:  # a client may send any method
            self[method] = table
        return table

    def begin_again(self) -> None:
        """Let the paths so far be the old generation."""
        self.kept = 0
        for method, table in list(self.items()):
            table.begin_again()
            if method not in COMMON:
                del self[method]

    def forget(self) -> None:
        """Forget all paths: their values are not true any more."""
        for _ in range(2):  # also the old generation
            self.begin_again()


class PathTable(dict[str, V]):
    """The results of one method by path."""

    __slots__ = ("_before", "_cache", "_method")

    def __init__(self, cache: PathCache[V], method: str) -> None:
        super().__init__()
        self._cache = cache
        self._method = method
        self._before: dict[str, V] = {}

    def __missing__(self, path: str) -> V:
        found = self._before.get(path, _UNKNOWN)
        if found is _UNKNOWN:
            found = self._cache.find(self._method, path)
        if len(path) <= LONGEST_PATH:
            if self._cache.kept >= MOST_PATHS:
                self._cache.begin_again()
            self._cache.kept += 1
            self[path] = found  # type: ignore[assignment]
        return found  # type: ignore[return-value]

    def begin_again(self) -> None:
        """Let the paths so far be the old generation."""
        self._before = dict(self)
        self.clear()
