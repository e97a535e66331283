"""Pauses as limits: no text of the grammar makes one, and their state is an instant until which calls are refused."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from headgate.algorithms import pause
from headgate.clock import DAY
from headgate.limit.value import Limit

LONGEST_BAN: Final = 366 * DAY
"""The longest ban in microseconds."""
BAN: Final = "ban"


def pause_limit(word: str, name: str, params: tuple[int, ...]) -> Limit:
    """Return a pause as a limit. Pauses of one word share a table; the name, if any, divides their states."""
    limit = object.__new__(Limit)
    numbers = pause.Params(*params)
    fields = {
        "amount": 0, "period_us": numbers.longest, "burst": numbers.burst, "algorithm": word, "block_us": 0,
        "growth": (), "name": name, "step": pause, "params": numbers, "exact": True, "family": word,
        "identity": word if name in ("", word) else f"{word} as {name}", "in_flight": False, "calendar": None,
    }  # fmt: skip
    for field, value in fields.items():
        object.__setattr__(limit, field, value)
    object.__setattr__(limit, "_hash", hash(limit._fields()))
    return limit


PAUSE: Final = pause_limit(pause.KIND, pause.KIND, pause.GUARD)
"""The guard: refuses every call of a key that is paused."""
PAUSING: Final = pause_limit(pause.KIND, pause.KIND, pause.SETS)
"""The same state; the cost of a call is the time of a pause."""


@lru_cache(maxsize=4096)
def ban_limit(rule: str) -> Limit:
    """Return the bans of a rule's keys, or without a name the instants until which rules have bans.

    The cost of a call is the time of a ban; a call of cost 0 is told the time that is left, as its reset.
    """
    return pause_limit(BAN, rule, pause.Params(0, LONGEST_BAN, 1))


def stored_pause(text: str) -> Limit | None:
    """Return the pause that a store has written as this text; None if the text is that of another limit."""
    if text == str(PAUSE):
        return PAUSE
    word, _, name = text.partition(" as ")
    return ban_limit(name) if word == BAN else None
