"""Formats of text, in which a regular expression finds the fields."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from headgate.lab.logs.formats.contract import UnreadableLine
from headgate.lab.logs.request import Row

Fields = list[tuple[str, ...]]
QUOTED: Final = r'[^"\\\n]*(?:\\.[^"\\\n]*)*'
REQUEST: Final = rf'"(?:([A-Z]+) (/[^ "\\\n]*) HTTP/[0-9.]+|({QUOTED}))"'
"""A usual request line in two groups, quickly; any other in a third."""


class Part(NamedTuple):
    """A part of a line, and the reason why a line without it cannot be read."""

    pattern: str
    reason: str


class TextFormat:
    """A format of which a line is a sequence of parts; what follows the last part is left unread."""

    unit = "date"

    def __init__(self, name: str, parts: Sequence[Part], build: Callable[[Fields], list[Row]], lacks: str = "") -> None:
        self.name, self.lacks, self._parts, self._build = name, frozenset(lacks.split()), parts, build
        # One call finds the fields of many lines. No pattern crosses the end of a line.
        self._find = re.compile("^" + "".join(part.pattern for part in parts) + ".*\n", re.MULTILINE).findall

    def rows(self, text: str) -> list[Row]:
        """Read many lines."""
        try:
            return self._build(self._find(text))
        except UnreadableLine:
            return []

    def row(self, line: str) -> Row:
        """Read one line."""
        found = self._find(f"{line}\n")
        if len(found) != 1:
            raise UnreadableLine(self._reason(line))
        return self._build(found)[0]

    def _reason(self, line: str) -> str:
        pattern = ""
        for part in self._parts[:-1]:
            pattern += part.pattern
            if not re.match(pattern, line):
                return part.reason
        return self._parts[-1].reason


def code(text: str) -> int:
    """Return the number of a status; 0 for `-`."""
    return 0 if text == "-" else int(text)
