"""The line numbers of the values in a JSON file, which Python's parser does not give.

The text has been parsed before, so its syntax is valid, and each of its tokens is visited once.
"""

from __future__ import annotations

import json
import re
from typing import Final

Path_ = tuple[str | int, ...]
"""The path to a value: ("rules", 0, "match", "path")."""

_SIGN: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]:,\n]|[^"{}\[\]:,\s]+')


class _Inside:
    """An object or a list that is open."""

    __slots__ = ("key", "names", "path", "place")

    def __init__(self, path: Path_, names: set[str] | None) -> None:
        self.path = path
        self.names = names
        """The names of an object so far; None in a list."""
        self.key: str | None = None
        """The name whose value comes next; None where a name comes next."""
        self.place = 0


def lines_of(text: str) -> tuple[dict[Path_, int], list[tuple[int, str]]]:
    """Return the line of every value, and line and name of every field that an object has twice."""
    lines: dict[Path_, int] = {}
    twice: list[tuple[int, str]] = []
    line, around = 1, [_Inside((), None)]
    for sign in _SIGN.findall(text):
        inside = around[-1]
        if sign == "\n":
            line += 1
        elif sign in ("}", "]"):
            around.pop()
        elif sign == ",":
            inside.place += 1
            inside.key = None
        elif sign == ":":
            pass
        elif inside.names is not None and inside.key is None:
            inside.key = json.loads(sign)
            if inside.key in inside.names:
                twice.append((line, inside.key))
            inside.names.add(inside.key)
        else:
            own = () if len(around) == 1 else (inside.place if inside.key is None else inside.key,)
            path = (*inside.path, *own)
            lines[path] = line
            if sign in ("{", "["):
                around.append(_Inside(path, set() if sign == "{" else None))
    return lines, twice
