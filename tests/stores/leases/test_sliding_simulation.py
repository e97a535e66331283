"""Fleets that lease sliding windows, in virtual time: their bound, what they admit, and what a drop ratio would admit.

The bound and the worlds are in sliding_laws.py.
"""

from __future__ import annotations

import random
from dataclasses import replace
from math import ceil
from typing import Any

import pytest

from headgate.clock import SECOND
from headgate.limit import Limit
from headgate.stores.leases.ledger import LeaseLedger
from headgate.stores.leases.terms import Lease
from tests.stores.leases.test_simulation import BOTH, SOAK, Late, Twice, Uncharged, in_turn
from tests.support.drop_ratio import by_drop_ratio, most_in_a_period
from tests.support.lease_laws import (
    admitted,
    ambush,
    equal,
    fairness,
    storm,
    too_many,
    try_out_sliding,
    unequal,
    utilisation,
    violations,
)
from tests.support.lease_setup import Setup
from tests.support.lease_world import World
from tests.support.sliding_laws import LOADS, Overload, Overloaded, admits, overload, sliding

pytestmark = pytest.mark.engineless


@pytest.mark.parametrize("slots", [1, 2, 7, 60])
@pytest.mark.parametrize("amount", [10, 97])
def test_the_bound_is_what_the_window_itself_admits_at_most(slots, amount):
    """The worst requests come in the last microsecond of a slot, one period apart, and once more at the end."""
    limit = Limit(amount, "60ms", algorithm=f"sliding-window/{slots}")
    step, params, slot = limit.step, limit.params, 60_000 / slots
    first = ceil(slot) - 1
    for parts in (0, 1, 3, 59, 60, 61, 119, 120, 135):
        last = first + parts * 1000
        state, admitted = step.fresh(params), 0
        for at in [*range(first, last, 60_000), last]:
            verdict = step.answer(state, params, 60_000_000 + at, 0)
            step.charge(state, params, verdict.mark, verdict.remaining)
            admitted += verdict.remaining
        assert admitted == admits(limit, max(0, last - slot)), parts


def kept_units(limit: Limit, seed: int) -> list[tuple[int, int]]:
    """Charge as much as fits or a part of it, at the edges of slots, and give back some later: instants, units kept."""
    chance = random.Random(seed)
    step, params, slot = limit.step, limit.params, limit.period_us / limit.params.slots
    state, now = step.fresh(params), 60_000_000
    charges: list[Any] = []
    for _ in range(120):
        edge = ceil((now // slot + chance.choice((1, 1, limit.params.slots))) * slot)
        now = max(
            now, chance.choice((now, now + 1, edge - 1, edge - 1, edge, edge + 1, now + chance.randrange(30_000)))
        )
        verdict = step.answer(state, params, now, 0)
        cost = chance.choice((verdict.remaining, chance.randint(0, verdict.remaining)))
        step.charge(state, params, verdict.mark, cost)
        charges.append([now, cost, verdict.mark])
        for charge in charges:
            if charge[1] and chance.random() < 0.1:
                units = chance.choice((charge[1], chance.randint(1, charge[1])))
                step.give(state, params, now, step.at_grant(charge[2], charge[0]), units)
                charge[1] -= units
    return [(at, units) for at, units, _ in charges]


@pytest.mark.parametrize("slots", [1, 2, 3, 10])
def test_units_that_were_given_back_at_any_time_leave_the_bound_to_the_others(slots):
    """Between any two charges: the units that were kept are at most those that the window admits in that time."""
    limit = Limit(50, "60ms", algorithm=f"sliding-window/{slots}")
    for seed in range(40):
        kept = kept_units(limit, seed)
        for first, (begin, _) in enumerate(kept):
            total = 0
            for end, units in kept[first:]:
                total += units
                assert total <= admits(limit, end - begin), (seed, begin, end)


@pytest.mark.parametrize("load", range(len(LOADS)), ids=[f"{load}x" for load in LOADS])
def test_no_load_breaks_the_bound(load):
    """Uneven nodes come and go, and the server is slow, stopped or replaced by a replica that is behind."""
    seeds = range(load, 2 * len(LOADS), len(LOADS))
    assert {seed: wrong for seed in seeds if (wrong := violations(Overloaded(overload(seed)).run()))} == {}


@pytest.mark.parametrize("first", [0, pytest.param(5, marks=SOAK)])
def test_no_storm_breaks_the_bound(first):
    """The storms and the ambushes that are tried on buckets and fixed windows, with sliding windows."""
    worlds = [World(sliding((storm, ambush)[seed % 2](seed))) for seed in range(first, first + 5)]
    assert [wrong for world in worlds if (wrong := violations(world.run(close=True)))] == []


@pytest.mark.parametrize("seed", [36, 111, 157, 208, 253])
def test_refused_callers_are_told_the_latest_time_that_is_known(seed):
    """Worlds in which a remembered refusal, a question of another cost or a heartbeat came between two answers."""
    assert try_out_sliding(seed) == []


@in_turn(
    *(("1000/second by sliding-window", nodes, times) for nodes, times in ((1, 2.0), (1, 5.0), (4, 5.0), (4, 2.0))),
    ("5000/second by sliding-window/10", 60, 2.0),
    soak=(("5000/second by sliding-window/10", 60, 5.0),),
)
def test_a_sliding_window_above_its_limit_is_asked_about_at_a_pace(limits, nodes, times, awaited):
    """At most 50 questions a second of a node and 2,000 of all, at least 97 % of the limit, and alike for all."""
    rate = Limit.parse(limits).amount
    setup = Setup(seed=1, limits=limits, phases=equal(nodes, times * rate), seconds=4.0, awaited=awaited, threads=4)
    world = World(setup).run()
    assert violations(world) == []
    assert max(world.ledger.by_second[second] for second in (1, 2, 3)) <= min(2000, 50 * nodes)
    assert admitted(world, since=1.0) >= 0.97 * 3 * rate
    assert fairness(world, since=1.0) >= 0.95


@pytest.mark.parametrize(("nodes", "slots"), [(300, 10), *(pytest.param(1000, slots, marks=SOAK) for slots in (1, 10))])
def test_many_nodes_at_exactly_the_limit_use_it(nodes, slots):
    """From the third second on: before that, the window pays once for the tokens that the nodes hold."""
    rate = 10 * nodes
    limits = f"{rate}/second by sliding-window/{slots}"
    world = World(Setup(seed=1, limits=limits, phases=equal(nodes, rate), seconds=3.0, awaited="half")).run()
    assert violations(world) == []
    wanted = sum(at >= 2_000_000 for number in range(nodes) for at, _, _ in world.demand(number))
    assert admitted(world, since=2.0) >= 0.97 * min(wanted, rate)
    assert max(world.ledger.by_second[second] for second in range(3)) <= 2000


def test_a_turn_may_take_less_than_two_units():
    """2,500 a second are 1.9 units in a turn and a quarter: rounded down, 1,667 turns a second would use 67 %."""
    limits = "2500/second by sliding-window/10"
    world = World(Setup(seed=1, limits=limits, phases=equal(150, 5_000), seconds=1.5, awaited="half")).run()
    assert violations(world) == []
    assert admitted(world, since=0.5) >= 0.97 * 2_500


@pytest.mark.soak
def test_units_that_were_charged_together_do_not_favour_some_nodes():
    """A thousand nodes begin together: the units of their first slot come back together, and are shared by all."""
    limits = "10000/second by sliding-window/10"
    world = World(Setup(seed=1, limits=limits, phases=equal(1000, 20_000), seconds=5.0, awaited="half")).run()
    assert violations(world) == []
    assert fairness(world, since=1.0) >= 0.95
    assert admitted(world, since=3.0) >= 0.97 * 20_000


@pytest.mark.parametrize("ledger_type", [Late, Uncharged, Twice])
def test_a_fleet_that_admits_too_many_is_found_out(ledger_type):
    """The bound alone finds tokens that are spent late, were never charged, or are given back twice."""
    setups = (sliding(ambush(seed)) for seed in (30, 58, 48, *range(100, 200)))
    assert any(too_many(World(setup, ledger_type).run()) for setup in setups)


def test_a_replica_that_is_behind_forgets_its_delay_and_no_more():
    """The charges that it had not heard of are admitted once more, and no others."""
    limits, phases = "200/5s by sliding-window", equal(5, 400)  # all in one window
    setup = Overload(seed=3, limits=limits, phases=phases, seconds=2.0, failovers=((0.5, 0.3),))
    world = Overloaded(setup).run()
    ((at, lost, _),) = world.replicated.lost
    assert at == 0.5 * SECOND
    assert lost > 50
    assert violations(world) == []
    assert 200 < world.admitted <= 200 + lost


@in_turn(
    ("1000/second by sliding-window", 10, 1.5),
    ("2000/2s by sliding-window/20", 40, 1.5),
    ("300/500ms by sliding-window/5", 10, 2.0),
    soak=(("300/500ms by sliding-window", 40, 1.2),),
)
def test_a_saturated_fleet_admits_what_the_window_allows(limits, nodes, times, awaited):
    """97 % of what a round trip for each request would admit, alike for all or where half have ten times more.

    The units that come back within a tick wait for its end, and leave the window as much later.
    """
    limit = World(Setup(limits=limits)).limits[0]
    total = times * limit.amount * SECOND / limit.period_us
    setup = Setup(seed=1, limits=limits, phases=equal(nodes, total), seconds=2.0, awaited=awaited, threads=4)
    alike, skewed = World(setup).run(), World(replace(setup, phases=unequal(nodes, total))).run()
    assert violations(alike) == violations(skewed) == []
    assert min(utilisation(alike), utilisation(skewed)) >= 0.97
    assert fairness(alike) > 0.95


@BOTH
def test_a_hot_sliding_window_away_from_its_limit_takes_few_round_trips(awaited):
    """At least 50 decisions for each round trip, and no request is refused."""
    limits = "10000/second by sliding-window/10"
    world = World(Setup(seed=1, limits=limits, phases=equal(10, 6000), seconds=3.0, awaited=awaited)).run()
    assert violations(world) == []
    assert world.admitted == world.ledger.asked > 50 * world.trips


@BOTH
def test_a_fleet_that_is_closed_holds_nothing_of_a_sliding_window(awaited):
    """The server counts the units that were spent: all others came back to the slots of their charges."""
    phases = ((0.0, (200.0,) * 20), (2.0, (0.0,) * 20))
    limits = "1000000/day by sliding-window/24"
    world = World(Setup(seed=1, limits=limits, phases=phases, seconds=2.0, awaited=awaited)).run(close=True)
    assert violations(world) == []
    assert world.ledger.given_back == world.ledger.handed > 0
    assert world.ledger.charged - world.ledger.given_back == world.admitted


def step_to(load: float, limits: str) -> Setup:
    """Ten nodes at a tenth of 100 a second, then at this load."""
    phases = ((0.0, (1.0,) * 10), (2.0, (10.0 * load,) * 10))
    return Setup(seed=1, limits=limits, phases=phases, seconds=4.0, threads=4)


@pytest.mark.parametrize("slots", [1, 10])
@pytest.mark.parametrize("load", [10, 100])
def test_a_drop_ratio_admits_as_much_as_is_offered_before_it_is_renewed(load, slots):
    """After a step of the load a fraction that is a second old admits all of it; leases admit what the window does."""
    world = World(step_to(load, f"100/second by sliding-window/{slots}")).run()
    assert violations(world) == []
    assert most_in_a_period(world, sorted(world.spent)) <= 1.3
    assert 0.95 * load < most_in_a_period(world, by_drop_ratio(world, 1.0)) < 1.1 * load
    assert 0.09 * load < most_in_a_period(world, by_drop_ratio(world, 0.1)) < 0.12 * load + 1.5


class Hoarder(LeaseLedger):
    """Asks for all that is left."""

    def wanted(self, key: str, units: int, *others: Any) -> int:
        return 10**6


def test_hoarded_leases_nearly_reach_the_bound():
    """A node that is charged the whole limit and spends it as late as it may doubles what a period admits, no more."""
    lease = Lease(validity=0.5, share=1.0)
    limits = "100/second by sliding-window/10"
    touch, salvo = (200.0, 0.0), (20_000.0, 20_000.0)
    phases = ((0.06, touch), (0.08, (0.0, 0.0)), (0.45, salvo), (0.5, (0.0, 0.0)), (1.15, salvo))
    setup = Setup(seed=1, limits=limits, lease=lease, phases=((0.0, (0.0, 0.0)), *phases), seconds=1.2, awaited="yes")
    world = World(setup, Hoarder).run()
    assert violations(world) == []
    assert 1.9 < most_in_a_period(world, sorted(world.spent)) <= 2.0
