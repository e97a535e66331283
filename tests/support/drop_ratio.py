"""The alternative to leases: each node admits a fraction of its requests, which a server computes from the demand.

The model favours the fraction: reports and answers take no time, none is lost, and the demand is known exactly.
"""

from __future__ import annotations

import random
from collections import Counter

from headgate.clock import SECOND
from tests.support.lease_setup import Spent
from tests.support.lease_world import World


def by_drop_ratio(world: World, every: float) -> list[Spent]:
    """Return what the nodes of a world admit by a fraction that is renewed every so many seconds.

    The fraction is the units that the limit allows in that time, divided by the units asked for in the time before.
    """
    limit, interval = world.limits[0], round(every * SECOND)
    chance = random.Random(f"{world.setup.seed} drops")
    asked = sorted((at, node.number, units) for node in world.nodes for at, _, units in world.demand(node.number))
    demand: Counter[int] = Counter()
    for at, _, units in asked:
        demand[at // interval] += units
    allowed = limit.amount * interval / limit.period_us
    return [
        Spent(at, world.keys[0], units, node, leased=False)
        for at, node, units in asked
        if chance.random() * demand[at // interval - 1] < allowed
    ]


def most_in_a_period(world: World, spents: list[Spent]) -> float:
    """Return the largest number of units admitted in any period, as a multiple of the limit."""
    limit, total, first, most = world.limits[0], 0, 0, 0
    for spent in spents:
        total += spent.units
        while spents[first].at <= spent.at - limit.period_us:
            total -= spents[first].units
            first += 1
        most = max(most, total)
    return most / limit.amount
