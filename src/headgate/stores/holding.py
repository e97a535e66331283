"""`Holding`: one permit in flight, as an operator sees it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from headgate.clock import SECOND
from headgate.limit import Limit


class Holding(NamedTuple):
    """One permit in flight."""

    limit: Limit
    age: float
    """Seconds since the permit was taken."""
    units: int
    own: bool
    """Whether this process holds the permit."""


def listed(limits: tuple[Limit, ...], held: Iterable[tuple[int, int, int, bool]]) -> list[Holding]:
    """Return holdings, the oldest first, from rows of limit index, age, units and whether this process holds them."""
    each = [Holding(limits[at], age_us / SECOND, units, own) for at, age_us, units, own in held]
    return sorted(each, key=lambda holding: -holding.age)
