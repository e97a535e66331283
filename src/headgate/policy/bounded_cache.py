"""A bounded cache by method and path, as clients send them, that a flood of paths cannot empty."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

MOST: Final = 4096
"""The most paths in each of two generations."""
LONGEST: Final = 256
"""The most characters of a cached path."""
_UNKNOWN: Final = object()
V = TypeVar("V")


class BoundedCache(dict[tuple[str, str], V]):
    """`cache[method, path]` returns the cached result, or finds and caches it.

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
        if len(asked[1]) <= LONGEST:
            if len(self) >= MOST:
                self._before = dict(self)
                self.clear()
            self[asked] = found  # type: ignore[assignment]
        return found  # type: ignore[return-value]
