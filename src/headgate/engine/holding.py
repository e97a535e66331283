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


def listed(limits: tuple[Limit, ...], now_us: int, found: Iterable[tuple[int, int, int, bool]]) -> list[Holding]:
    """Place among the limits, instant, units and whose, for people: the oldest first."""
    each = [Holding(limits[place], max(0, now_us - since) / SECOND, units, own) for place, since, units, own in found]
    return sorted(each, key=lambda holding: -holding.age)
