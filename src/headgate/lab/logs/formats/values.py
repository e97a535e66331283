"""Values of fields that a user or a format names: keys, costs, statuses."""

from __future__ import annotations

from typing import Final

from headgate.algorithms import EXACT
from headgate.call import LONGEST_KEY
from headgate.lab.logs.formats.contract import UnreadableLine
from headgate.lab.logs.request import NOBODY
from headgate.wording import shown

LONGEST_TEXT: Final = LONGEST_KEY // 4
"""Characters of a key: as many as are surely short enough for a limiter."""


def key_of(value: object) -> str:
    """Return the key that a field names; `-` for one that is empty or absent."""
    if value is None or value == "":
        return NOBODY
    if not isinstance(value, str | int | float):
        raise UnreadableLine(f"{shown(value)} is no key")
    key = value if isinstance(value, str) else str(value)
    if len(key) > LONGEST_TEXT:
        raise UnreadableLine(f"its key has more than {LONGEST_TEXT:,} characters")
    return key


def text_of(value: object) -> str:
    """Return the text of a field; empty for one that is absent."""
    return value if isinstance(value, str) else "" if value is None else str(value)


def cost_of(value: object) -> int:
    """Return the cost that a field holds: a whole number, or a text of one."""
    cost = _whole(value)
    if cost is None or not 0 <= cost <= EXACT:
        raise UnreadableLine("it has no cost" if value in (None, "") else f"{shown(value)} is no cost")
    return cost


def status_of(value: object) -> int:
    """Return the status that a field holds; 0 where it holds none."""
    status = _whole(value)
    return status if status is not None and 0 <= status <= 999 else 0


def _whole(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        number = value if isinstance(value, int) else float(value)
    except ValueError:
        return None
    return None if number % 1 else int(number)  # infinite and undefined numbers have an undefined rest
