"""JSON from anywhere: a text that cannot be read is None, whatever is wrong with it."""

from __future__ import annotations

import json
import re
from typing import Any, Final

MOST_TOKENS: Final = 1_000_000_000
"""Above this a number is no count of tokens."""
MOST_CANDIDATES: Final = 8
_USAGE: Final = re.compile(rb'(?<!\\)"usage"\s*:')
"""The name of a field. Within a text both quotes would be escaped."""


def parsed(text: bytes | bytearray | str) -> dict[str, Any]:
    """Return the object that a text contains; empty if there is none."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):  # a wrong encoding and an integer of too many digits are ValueErrors
        return {}
    return found if isinstance(found, dict) else {}


def written(value: object) -> str:
    """Return a parsed value as compact JSON; empty if it is nested too deeply."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except RecursionError:
        return ""


def whole(value: object) -> int | None:
    """Return a count of tokens, or None: negative numbers, fractions, texts and huge numbers are none."""
    return value if type(value) is int and 0 <= value <= MOST_TOKENS else None


def object_in(value: object, name: str) -> dict[str, Any]:
    """Return the object in a field of an object; empty if either is not there."""
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


def usage_at_end(tail: bytes | bytearray, opening: bytes) -> dict[str, Any]:
    """Return the `usage` of an object of which only the end is there, after `opening`; empty if it is not in the end.

    The rest after the name must close as many brackets as `opening` opens: a usage elsewhere in the object is not it.
    """
    places = [found.start() for found in _USAGE.finditer(tail)]
    for place in reversed(places[-MOST_CANDIDATES:]):
        if found := parsed(opening + tail[place:]):
            return found
    return {}
