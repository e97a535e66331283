"""Lists of structured fields (RFC 9651), as far as rate limits use them: `"name";r=50;t=30, "other";r=9`.

The scan looks at each character a bounded number of times.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

MOST_ITEMS: Final = 32
"""The most items of a list; a longer list is not read."""

_VALUE: Final = r"\"(?:[ !#-\[\]-~]|\\[\"\\])*\"|[A-Za-z*][\w!#$%&'*+.^`|~:/-]*|-?[0-9]{1,15}(?:\.[0-9]{1,3})?"
_ITEM: Final = re.compile(rf"({_VALUE})", re.ASCII)
_PARAMETER: Final = re.compile(rf";[ ]*([a-z*][a-z0-9_.*-]*)(?:=({_VALUE}|:[A-Za-z0-9+/=]*:|\?[01]))?", re.ASCII)
_COMMA: Final = re.compile(r"[ \t]*,[ \t]*")


class Item(NamedTuple):
    """A value with its parameters, all as they are written; strings without their quotes."""

    value: str
    is_number: bool
    parameters: dict[str, str]


def _bare(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1]) if text.startswith('"') else text


def items_of(text: str) -> list[Item]:
    """Return the items of a list; none if any part of the list is malformed."""
    items: list[Item] = []
    at, end = 0, len(text)
    while at < end and len(items) < MOST_ITEMS:
        found = _ITEM.match(text, at)
        if found is None:
            return []
        value, at, parameters = found[0], found.end(), {}
        while given := _PARAMETER.match(text, at):
            parameters[given[1]] = _bare(given[2] or "")
            at = given.end()
        items.append(Item(_bare(value), value[0] in "-0123456789", parameters))
        if at == end:
            return items
        comma = _COMMA.match(text, at)
        if comma is None:
            return []
        at = comma.end()
    return []
