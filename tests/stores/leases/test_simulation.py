"""Fleets that lease, in virtual time: what they may admit at most, what they should admit, and what it costs.

The laws are in lease_laws.py, the world is in lease_world.py. `make soak` tries a thousand worlds and more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest

from headgate.algorithms import bucket
from headgate.clock import SECOND
from headgate.engine import Decision
from headgate.stores.leases import ledger
from headgate.stores.leases.ledger import Grant, LeaseLedger, Unused
from headgate.stores.leases.pace import Pace, Pause
from headgate.stores.leases.terms import Lease
from tests.support.lease_laws import (
    admitted,
    ambush,
    decisions_a_trip,
    equal,
    fairness,
    in_windows,
    storm,
    too_many,
    try_out,
    uncounted,
    unequal,
    utilisation,
    violations,
)
from tests.support.lease_setup import Setup
from tests.support.lease_world import World

pytestmark = pytest.mark.engineless

BOTH = pytest.mark.parametrize("awaited", ["no", "yes"], ids=["threads", "tasks"])
SOAK = pytest.mark.soak


def in_turn(*cases: tuple[str, int, float], soak: tuple[tuple[str, int, float], ...] = ()) -> pytest.MarkDecorator:
    """Limits, nodes and times, for threads and for tasks in turn; `make soak` tries each in both ways."""
    ways = [(case, at % 2 == number) for at, case in enumerate(cases) for number in range(2)]
    tried = [
        pytest.param(*case, ("no", "yes")[at % 2], marks=() if now else SOAK)
        for at, (case, now) in enumerate([*ways, *((case, False) for case in soak for _ in range(2))])
    ]
    return pytest.mark.parametrize(("limits", "nodes", "times", "awaited"), tried)


@pytest.mark.parametrize("first", [0, pytest.param(5, marks=SOAK)])
def test_no_storm_breaks_a_law(first):
    """Crashes, partitions, losses, delays, skewed clocks, a server that forgets, greed; each seed is another world."""
    assert {seed: wrong for seed in range(first, first + 5) if (wrong := try_out(seed))} == {}


@pytest.mark.parametrize("setup", [storm(4), storm(11), ambush(26)], ids=["storm", "another", "ambush"])
def test_a_seed_is_a_world(setup):
    """Two runs are the same, event for event; another seed is another world."""
    one, same, other = (World(each).run() for each in (setup, setup, replace(setup, seed=99)))
    assert (one.spent, one.ledger) == (same.spent, same.ledger)
    assert one.spent != other.spent


# The laws can be broken: each of these fleets is wrong in one point, and is found out.


class Late(LeaseLedger):
    """Spends after the validity."""

    def __init__(self, limits: Any, terms: Lease, *others: Any) -> None:
        super().__init__(limits, replace(terms, validity=3 * terms.validity), *others)


class BeyondTheSeam(LeaseLedger):
    """Spends after the window."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._demand.windows = ()


class Uncharged(LeaseLedger):
    """Spends what the server never charged."""

    def _begin(self, held: Any, grant: Grant) -> None:
        super()._begin(held, grant._replace(units=grant.units + max(1, grant.units // 2)))


class Twice(LeaseLedger):
    """Gives back twice."""

    def unused(self, most: int | None = None) -> list[Unused]:
        return super().unused(most) * 2


class Forgetful(LeaseLedger):
    """Loses what is left of a lease."""

    def _give_back(self, grant: Grant, units: int, now: int) -> None:
        self._unused += [] if units % 3 else [Unused(grant.key, units, grant.marks)] * 2


class Hurried(Pause):
    """Halves every wait."""

    def decision(self, limits: Any, key: str, units: int, now: int) -> Decision:
        told = super().decision(limits, key, units, now)
        return Decision(limits, key, (units,), [0, 0, told.retry_us // 2, told.reset_us, 0, 0])


class Hasty(Pace):
    """Tells callers when the server will have a unit, not when this node will ask for it."""

    def see(self, held: Any, *given: Any) -> None:
        super().see(held, *given)
        if held.pause is not None:
            held.pause = Hurried(*held.pause)


def test_who_is_told_a_time_that_is_too_early_is_found_out(monkeypatch):
    """A caller that comes back then is refused again by what was known before."""
    setup = Setup(seed=1, limits="1000/second", phases=equal(4, 5000), seconds=1.0)
    honest = World(setup).run()
    monkeypatch.setattr(ledger, "Pace", Hasty)
    hasty = World(setup).run()
    assert (honest.ledger.misled, violations(honest)) == (0, [])
    assert hasty.ledger.misled > 100


def ambushes(ledger_type: type[LeaseLedger] = LeaseLedger) -> Iterator[World]:
    """Those first that have found somebody out."""
    return (World(ambush(seed), ledger_type).run() for seed in (1, 32, 26, 1127, 1129, 9, 28, 238, *range(100, 300)))


@pytest.mark.parametrize("ledger_type", [Late, BeyondTheSeam, Uncharged, Twice])
def test_who_admits_too_many_is_found_out(ledger_type):
    """The bound alone finds out a fleet that is wrong."""
    assert any(too_many(world) for world in ambushes(ledger_type))


@pytest.mark.parametrize("since", [lambda mark, at: mark, lambda mark, at: (2**52, 0)], ids=["from its place", "whole"])
def test_who_gives_back_too_much_is_found_out(since, monkeypatch):
    """Counted from the charge's place in line, or not at all, instead of from the grant."""
    monkeypatch.setattr(bucket, "at_grant", since)
    assert any(too_many(world) for world in ambushes())


def test_who_does_as_agreed_is_not():
    """In the same worlds."""
    assert not any(map(violations, islice(ambushes(), 5)))


@pytest.mark.parametrize("ledger_type", [Uncharged, Twice, Forgetful])
def test_who_loses_or_doubles_is_found_out(ledger_type):
    """Every unit that was charged is spent, held, given back or known to be lost."""
    assert any(uncounted(world) for world in islice(ambushes(ledger_type), 5))


@in_turn(
    ("1000/second", 10, 2.0),
    ("1000/second burst 100", 40, 1.2),
    ("50/second", 10, 1.5),
    ("1000/second by fixed-window", 10, 1.5),
    ("300/500ms by fixed-window", 40, 1.2),
    soak=(("2000/2s by fixed-window", 40, 1.5),),
)
def test_a_saturated_fleet_admits_what_the_limit_allows(limits, nodes, times, awaited):
    """95 % of what a round trip for each request would admit, alike for all; 90 % where half have ten times more."""
    limit = World(Setup(limits=limits)).limits[0]
    total = times * limit.amount * SECOND / limit.period_us
    setup = Setup(seed=1, limits=limits, phases=equal(nodes, total), seconds=2.0, awaited=awaited, threads=4)
    alike, skewed = World(setup).run(), World(replace(setup, phases=unequal(nodes, total))).run()
    assert violations(alike) == violations(skewed) == []
    assert utilisation(alike) >= 0.95
    assert utilisation(skewed) >= 0.9
    assert fairness(alike) > 0.9


@in_turn(
    *(("1000/second", 4, times) for times in (0.5, 1.0, 2.0, 5.0)),
    ("2000/second burst 300", 60, 2.0),
    soak=tuple(("2000/second burst 300", 60, times) for times in (0.5, 1.0, 5.0)),
)
def test_a_key_above_its_limit_is_asked_about_at_a_pace(limits, nodes, times, awaited):
    """At most 50 questions a second of a node and 2,000 of all, at least 97 % of the limit, and alike for all."""
    rate = World(Setup(limits=limits)).limits[0].amount
    setup = Setup(seed=1, limits=limits, phases=equal(nodes, times * rate), seconds=3.0, awaited=awaited, threads=4)
    world = World(setup).run()
    assert violations(world) == []
    trips = max(world.ledger.by_second[second] for second in (1, 2))
    assert trips <= min(2000, 50 * nodes)
    assert admitted(world, since=1.0) >= 0.97 * min(times, 1.0) * 2 * rate * 0.98  # requests come at random
    assert fairness(world, since=1.0) >= 0.95


@pytest.mark.parametrize(
    "limits",
    [
        "10000/second",
        *(pytest.param(f"10000/second by {kind}-window", marks=SOAK) for kind in ("fixed", "sliding")),
    ],
)
@pytest.mark.parametrize("times", [pytest.param(0.5, marks=SOAK), 2.0])
def test_a_thousand_nodes_that_start_together_ask_at_the_same_pace(limits, times):
    """No node knows of the others, and every answer tells a turn: 2,000 questions in the first second too."""
    setup = Setup(seed=1, limits=limits, phases=equal(1000, times * 10_000), seconds=1.0, awaited="half", threads=4)
    world = World(setup).run()
    assert violations(world) == []
    assert world.ledger.by_second[0] <= 2000


@BOTH
@pytest.mark.parametrize("times", [2.0, pytest.param(5.0, marks=SOAK)])
def test_a_fixed_window_above_its_limit_is_asked_about_at_a_pace(times, awaited):
    """At most 2,000 questions a second of a hundred nodes, at least 97 % of each window, and alike for all."""
    limits = "2000/second by fixed-window"
    setup = Setup(seed=1, limits=limits, phases=equal(100, times * 2000), seconds=4.0, awaited=awaited, threads=4)
    world = World(setup).run()
    assert violations(world) == []
    assert max(world.ledger.by_second[second] for second in range(4)) <= 2000
    assert min(in_windows(world)[1:]) >= 0.97 * 2000
    assert fairness(world, since=1.0) >= 0.95


@pytest.mark.parametrize(
    ("nodes", "rate", "since", "trips"),
    [
        (100, 1_000, 1, 2000),
        *(
            pytest.param(*case, marks=SOAK)
            for case in ((300, 3_000, 1, 2000), (300, 10_000, 1, 2000), (1000, 10_000, 2, 2500))
        ),
    ],
)
def test_many_nodes_at_exactly_the_limit_of_a_fixed_window_use_it(nodes, rate, since, trips):
    """Nodes buy for the rest of the window and give back before its end: at most 3 % of the units are lost."""
    seconds = since + 2
    limits, phases = f"{rate}/second by fixed-window", equal(nodes, rate)
    world = World(Setup(seed=1, limits=limits, phases=phases, seconds=seconds, awaited="half", threads=4)).run()
    assert violations(world) == []
    wanted = sum(at >= since * SECOND for number in range(nodes) for at, _, _ in world.demand(number))
    assert admitted(world, since=since) >= 0.97 * min(wanted, 2 * rate)
    assert max(world.ledger.by_second[second] for second in range(since, seconds)) <= trips


@BOTH
@pytest.mark.parametrize("nodes", [4, pytest.param(100, marks=pytest.mark.soak)])
def test_callers_that_come_at_once_ask_one_question(nodes, awaited):
    """A new key at fifty times its limit: also in the first second a node asks 50 times, and all ask 2,000 times."""
    setup = Setup(seed=1, limits="1000/second", phases=equal(nodes, 50_000), seconds=1.0, awaited=awaited, threads=16)
    world = World(setup).run()
    assert violations(world) == []
    assert world.ledger.by_second[0] <= min(2000, 50 * nodes)


def test_a_node_with_ten_times_the_demand_gets_no_more_than_others():
    """Above the limit every node gets the same, whether it asks for ten times its share or for a hundred times."""
    setup = Setup(seed=1, limits="1000/second", phases=unequal(10, 20_000), seconds=3.0)
    world = World(setup).run()
    assert violations(world) == []
    assert fairness(world, since=1.0) >= 0.95


def test_a_lone_node_of_a_large_fleet_takes_the_whole_limit():
    """The turns of a node that is alone with a key are 20 to 40 ms apart, whatever the fleet."""
    phases = ((0.0, (20.0,) * 100), (1.0, (5000.0,) + (0.0,) * 99))
    world = World(Setup(seed=1, limits="1000/second", phases=phases, seconds=4.0)).run()
    assert violations(world) == []
    assert admitted(world, since=2.0) >= 0.97 * 2000
    assert max(world.ledger.by_second[second] for second in (2, 3)) <= 50


@BOTH
def test_many_keys_of_unlike_demand(awaited):
    """A few keys at their limit, many far from it: nobody loses by leases."""
    setup = Setup(seed=1, limits="100/second", phases=equal(20, 1500), keys=50, zipf=1.0, seconds=3.0, awaited=awaited)
    world = World(setup).run()
    assert violations(world) == []
    assert utilisation(world) >= 0.95


@BOTH
def test_a_hot_key_away_from_its_limit_takes_few_round_trips(awaited):
    """At least 50 decisions for each, of whatever kind, from the first request on."""
    world = World(Setup(seed=1, limits="10000/second", phases=equal(10, 6000), seconds=4.0, awaited=awaited)).run()
    assert violations(world) == []
    assert admitted(world) == world.ledger.asked
    assert decisions_a_trip(world) >= 50


@BOTH
@pytest.mark.parametrize("nodes", [5, 30])
def test_the_last_part_of_a_quota_is_exact(nodes, awaited):
    """While all keep asking, a window admits its limit: not one more, and not one less."""
    setup = Setup(seed=1, limits="1500/10s by fixed-window", phases=equal(nodes, 225), seconds=20.0, awaited=awaited)
    world = World(setup).run()
    assert violations(world) == []
    assert in_windows(world) == [1500, 1500]


@BOTH
@pytest.mark.parametrize("limits", ["1000/second", "10000/10s by fixed-window"])
def test_leases_follow_the_demand(limits, awaited):
    """It moves from one node to the other: three validities later that one is admitted as it asks, from leases."""
    phases = ((0.0, (900.0, 0.0)), (3.0, (0.0, 900.0)))
    world = World(Setup(seed=1, limits=limits, phases=phases, seconds=8.0, awaited=awaited, threads=4)).run()
    assert violations(world) == []
    moved = round(3.0 * SECOND) + 3 * world.validity_us
    wanted = sum(at >= moved for at, _, _ in world.demand(1))
    given = [spent for spent in world.spent if spent.node == 1 and spent.at >= moved]
    assert len(given) >= 0.95 * wanted
    assert sum(spent.leased for spent in given) >= 0.95 * len(given)


@BOTH
def test_what_is_leased_is_spent_while_the_server_is_away(awaited):
    """No unit is spent after its lease is void."""
    world = World(Setup(seed=1, limits="10000/second", phases=equal(10, 3000), seconds=5.0, awaited=awaited))
    for node in world.nodes:
        world.loop.at(2 * SECOND, world.cut_off, node, 10 * SECOND)
    world.run()
    since = [spent.at - 2 * SECOND for spent in world.spent if spent.at > 2 * SECOND]
    assert violations(world) == []
    assert len(since) > 100
    assert max(since) < world.validity_us


@BOTH
def test_a_fleet_that_is_closed_holds_nothing(awaited):
    """The server counts the units that were spent: in the middle of a window, all the rest was given back."""
    phases = ((0.0, (200.0,) * 20), (2.0, (0.0,) * 20))
    world = World(Setup(seed=1, limits="1000000/day by fixed-window", phases=phases, seconds=2.0, awaited=awaited))
    world.run(close=True)
    assert violations(world) == []
    assert world.ledger.given_back == world.ledger.handed > 0
    assert world.ledger.charged - world.ledger.given_back == world.admitted


def test_a_thousand_nodes():
    """Near their limit, by clocks that disagree: of those that start together, one in a thousand waits for its turn."""
    setup = Setup(
        seed=1, limits="10000/second", phases=equal(1000, 9000), seconds=2.0, skewed_clocks=True, drift_ppm=100
    )
    world = World(setup).run()
    assert violations(world) == []
    assert world.admitted >= 0.999 * world.ledger.asked
    assert world.ledger.by_second[0] <= 2000
    assert fairness(world) > 0.9
