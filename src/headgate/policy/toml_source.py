"""Policies in TOML. Its parser gives line numbers for syntax errors only."""

from __future__ import annotations

import re
import tomllib
from typing import Any, Final

from headgate.errors import InvalidPolicy

_TOKEN: Final = re.compile(
    r'''(?P<none>"""[^"\\]*(?:(?:\\(?:.|\Z)|"(?!""))[^"\\]*)*(?:"""|\Z)|'''
    r"""'{3}[^']*(?:'(?!'')[^']*)*(?:'{3}|\Z)|#[^\n]*|[^"'#A-Za-z0-9_. \t-]+)|"""
    r"""(?P<part>"[^"\\\n]*(?:\\[^\n][^"\\\n]*)*"?|'[^'\n]*'?|[A-Za-z0-9_-]+|[ \t]+)|(?P<dot>\.)""",
    re.DOTALL,
)
"""The parts of a key, its dots, and everything else: comments, brackets, long strings. Every text splits into these."""


def line_of_dots(text: str, most: int) -> int | None:
    """Return the line of the first key with more than `most` dots, also in invalid TOML."""
    dots = 0
    for found in _TOKEN.finditer(text):
        kind = found.lastgroup
        dots = dots + 1 if kind == "dot" else dots if kind == "part" else 0
        if dots > most:
            return text.count("\n", 0, found.start()) + 1
    return None


def read_toml(name: str, text: str, deepest: int) -> dict[str, Any]:
    """Parse a text."""
    deep = line_of_dots(text, deepest)
    if deep is not None:  # the parser's time grows with the square of the dots
        raise InvalidPolicy([f"{name}:{deep}: too large: a key has at most {deepest} dots"])
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as reason:
        said, _, at = str(reason).rpartition(" (at ")
        found = re.match(r"line (\d+)", at)
        line = int(found[1]) if found else len(text.rstrip().splitlines())  # the end of the document
        raise InvalidPolicy([f"{name}:{line}: not TOML: {said or reason}"]) from None
    except (ValueError, RecursionError) as reason:
        raise InvalidPolicy([f"{name}: not TOML: {reason}"]) from None
