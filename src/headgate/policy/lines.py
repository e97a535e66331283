"""The lines of a TOML file: its parser tells values, not where they stand.

The text has been parsed before, so it is known to be right, and only what separates values has to be understood:
headers, keys, brackets, strings and comments.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_left
from contextlib import suppress
from typing import Final

Path_ = tuple[str | int, ...]
"""The way to a value: ("rules", 0, "match", "path")."""

_SPACE: Final = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_KEY: Final = re.compile(r"""[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'""")
_DOT: Final = re.compile(r"[ \t]*\.[ \t]*")
_SCALAR: Final = re.compile(
    r'''"""(?:[^\\]|\\.)*?"{3,5}(?!")|\'\'\'.*?\'{3,5}(?!\')|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|[^,\]}#\n]+''', re.DOTALL
)
_TOKEN: Final = re.compile(
    r'''(?P<none>"""[^"\\]*(?:(?:\\(?:.|\Z)|"(?!""))[^"\\]*)*(?:"""|\Z)|'''
    r"""'{3}[^']*(?:'(?!'')[^']*)*(?:'{3}|\Z)|#[^\n]*|[^"'#A-Za-z0-9_. \t-]+)|"""
    r"""(?P<part>"[^"\\\n]*(?:\\[^\n][^"\\\n]*)*"?|'[^'\n]*'?|[A-Za-z0-9_-]+|[ \t]+)|(?P<dot>\.)""",
    re.DOTALL,
)
"""What a key is made of, its dots, and what is none: comments, brackets, long strings. Any text is made of these."""


def line_of_dots(text: str, most: int) -> int | None:
    """The line of the first key with more dots than that; also in a text that is no TOML."""
    dots = 0
    for found in _TOKEN.finditer(text):
        kind = found.lastgroup
        dots = dots + 1 if kind == "dot" else dots if kind == "part" else 0
        if dots > most:
            return text.count("\n", 0, found.start()) + 1
    return None


def lines_of(text: str) -> dict[Path_, int]:
    """The line of everything that has a key or a place in a list; of as much as was understood."""
    scan = _Scan(text)
    with suppress(ValueError):  # a line that is not known is only not told
        scan.document()
    return scan.lines


class _Scan:
    """A walk through the text."""

    def __init__(self, text: str) -> None:
        self.lines: dict[Path_, int] = {(): 1}
        self._text = text
        self._ends = [found.start() for found in re.finditer("\n", text)]
        self._at = 0
        self._tables: dict[Path_, int] = {}
        """How many tables each `[[list]]` has so far."""

    def document(self) -> None:
        base: Path_ = ()
        while self._next():
            if self._next() == "[":
                base = self._header()
            else:
                self._pair(base)

    def _next(self) -> str:
        """The next character that means something; empty at the end."""
        self._take(_SPACE)
        return self._text[self._at : self._at + 1]

    def _take(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self._text, self._at)
        if found is None:
            raise ValueError("not the TOML that was expected here")
        self._at = found.end()
        return found[0]

    def _note(self, path: Path_, at: int) -> None:
        self.lines.setdefault(path, bisect_left(self._ends, at) + 1)

    def _keys(self) -> list[str]:
        """`a.b."c d"`."""
        keys = []
        while True:
            self._next()
            word = self._take(_KEY)
            keys.append(tomllib.loads(f"key = {word}")["key"] if word[0] in "\"'" else word)
            if not _DOT.match(self._text, self._at):
                return keys
            self._take(_DOT)

    def _header(self) -> Path_:
        """`[table]` and `[[list]]`; a name on the way that is a list stands for its last table."""
        start = self._at
        brackets = 2 if self._text.startswith("[[", start) else 1
        self._at += brackets
        keys = self._keys()
        self._next()
        self._at += brackets
        path: Path_ = ()
        for depth, key in enumerate(keys, 1):
            path = (*path, key)
            self._note(path, start)
            if depth == len(keys) and brackets == 2:
                self._tables[path] = self._tables.get(path, 0) + 1
            if path in self._tables:
                path = (*path, self._tables[path] - 1)
                self._note(path, start)
        return path

    def _pair(self, base: Path_) -> None:
        """`a.b = value`."""
        start = self._at
        path = base
        for key in self._keys():
            path = (*path, key)
            self._note(path, start)
        self._next()
        self._at += 1
        self._value(path)

    def _value(self, path: Path_) -> None:
        opening = self._next()
        if opening not in ("[", "{"):
            self._take(_SCALAR)
            return
        self._at += 1
        place = 0
        while self._next() not in ("]", "}"):
            if opening == "{":
                self._pair(path)
            else:
                self._note((*path, place), self._at)
                self._value((*path, place))
            place += 1
            if self._next() == ",":
                self._at += 1
        self._at += 1
