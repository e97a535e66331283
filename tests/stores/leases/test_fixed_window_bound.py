"""What any plan of leases can make of a fixed window that is asked for exactly its amount, whatever it is."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.engineless

STEPS, MOST = 400, 30
"""Instants of a window, and the most units that a node ever wants to hold."""
RATE = 10.0
"""Requests of one node in a window, by chance, and its share of the limit."""
TRIPS = 2.0


def price_at(instant: float) -> float:
    """Return the price of a unit, to buy it or to give it back; late units are cheap, since fewer nodes want them."""
    if instant < 0.71:
        return 0.66
    if instant < 0.86:
        return 0.66 - 0.045 * (instant - 0.71) / 0.15
    return 0.615 - 0.217 * (instant - 0.86) / 0.14


def profit(price_of_a_trip: float) -> float:
    """Return the profit of the best plan of one node, at one coin for each request that it admits.

    The node knows its rate. It may ask at any instant, and buy or give back as many units as it likes.
    """
    chance = RATE / STEPS
    held = [0.0] * (MOST + 1)
    for step in reversed(range(STEPS)):
        price = price_at(step / STEPS)
        best = max(value - price * units for units, value in enumerate(held)) - price_of_a_trip
        asked = [max(held[0], 1 - price + best), *(1 + value for value in held[:-1])]
        held = [chance * come + (1 - chance) * none for come, none in zip(asked, held, strict=True)]
        best = max(value - price * units for units, value in enumerate(held)) - price_of_a_trip
        held = [max(value, best + price * units) for units, value in enumerate(held)]
    return held[0]


def test_a_thousand_nodes_with_two_round_trips_each_leave_a_part_of_the_window():
    """At any prices, profit and income together are at least what any plan admits (the dual of a linear program)."""
    trip = 0.53
    assert round((profit(trip) + RATE * price_at(0) + TRIPS * trip) / RATE, 3) == 0.976
