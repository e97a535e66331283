"""`Holding`: one permit that is out, for an operator to look at."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from headgate.clock import SECOND
from headgate.limit import Limit


class Holding(NamedTuple):
    """What one caller has in flight."""

    limit: Limit
    age: float
    """Seconds since it was taken."""
    units: int
    own: bool
    """This process holds it."""


def listed(limits: tuple[Limit, ...], held: Iterable[tuple[int, int, int, bool]]) -> list[Holding]:
    """Index of the limit, age, units and whose, for people: the oldest first."""
    each = [Holding(limits[at], age_us / SECOND, units, own) for at, age_us, units, own in held]
    return sorted(each, key=lambda holding: -holding.age)
