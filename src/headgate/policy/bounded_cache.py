"""Tables of what was found for a method and a path, as clients send them: bounded, and not to be emptied by a flood."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

MOST: Final = 4096
"""Paths in each of two generations."""
LONGEST: Final = 256
"""Characters of a path that is kept."""
_UNKNOWN: Final = object()
V = TypeVar("V")


class BoundedCache(dict[tuple[str, str], V]):
    """`recent[method, path]` is what was found for it, or is found now and kept.

    When the table is full it becomes the generation before, and a new one begins. What is asked for again moves to the
    new one, so that a flood of paths that nobody asks for twice pushes out others of that kind only.
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
