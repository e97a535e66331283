"""Limits as users and stores write them: a value, a text, or a sequence of both."""

from __future__ import annotations

from collections.abc import Sequence

from headgate.errors import InvalidLimit
from headgate.limit.grammar import parse_fields
from headgate.limit.pauses import stored_pause
from headgate.limit.value import Limit, parse_limits

Given = Limit | str | Sequence[Limit | str]
"""Limits as users write them."""


def stored_limit(text: str) -> Limit:
    """Return the limit of a text that a store has written: also of pauses, which are no limits in the grammar."""
    return stored_pause(text) or Limit.parse(text)


def as_limits(given: Given, queues: bool = False) -> tuple[Limit, ...]:
    """Return the limits of a `Limit`, a text, or a sequence of both; with `queues`, a text may have `queue 50`."""
    if isinstance(given, Limit):
        return (given,)
    if isinstance(given, str):
        return tuple(Limit(**fields) for fields in parse_fields(given, queues=True)) if queues else parse_limits(given)
    if isinstance(given, Sequence):
        return tuple(limit for each in given for limit in as_limits(each, queues))
    raise InvalidLimit(f"a limit must be a Limit or a string such as '10/minute'; got {given!r}")
