"""The overload laboratory: what it builds on, and what it shows in one seed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headgate.clock import MILLISECOND, SECOND
from headgate.lab.overload import MAKERS, SCENARIOS, Result, measure, run, table
from headgate.lab.overload.mixed import CRITICAL, GREEDY, NOISY
from headgate.lab.overload.result import percentile
from headgate.lab.overload.services import Cores, Dependency, Pool
from headgate.lab.overload.world import World
from headgate.shed.estimators import Adaptive, Fixed

pytestmark = pytest.mark.engineless


def ends(world, service, starts):
    """The milliseconds at which requests that start at these milliseconds end, and how."""
    ended = {}
    for number, start in enumerate(starts):
        world.after(
            start * MILLISECOND,
            service.serve,
            lambda outcome, number=number: ended.update({number: (world.us // MILLISECOND, outcome)}),
        )
    world.run(3600 * SECOND)
    return [ended[number] for number in range(len(starts))]


def constant(milliseconds):
    """Work that is the same for each request."""
    return lambda world: milliseconds * MILLISECOND


def test_a_pool_serves_in_order():
    """Two workers, 100 ms: the third request starts when the first ends."""
    world = World(0)
    served = ends(world, Pool(world, 2, constant(100)), [0, 10, 20, 30])
    assert served == [(100, "success"), (110, "success"), (200, "success"), (210, "success")]


def test_shared_cores_slow_each_other():
    """One core, 100 ms of work: two requests at once take 200 ms each, a third after 100 ms shares the rest."""
    world = World(0)
    assert ends(world, Cores(world, 1, constant(100)), [0, 0, 100])[0][0] == pytest.approx(250, abs=1)


def test_a_dependency_drops_what_takes_too_long():
    """A request waits for a dependency for a second, and is dropped then."""
    world = World(0)
    assert ends(world, Dependency(world, Pool(world, 1, constant(10)), constant(2_000)), [0]) == [(1_010, "dropped")]


def test_the_same_seed_is_the_same_trial():
    """Chance comes from the seed alone."""
    scenario = SCENARIOS["slow-few"]
    results = [measure(scenario, run(scenario, Adaptive(), seed)) for seed in (1, 1, 2)]
    assert results[0] == results[1] != results[2]


def test_no_shedder_serves_nothing_in_time_under_a_flood():
    """Without a limit the queue outgrows every timeout, and stays when the flood is over."""
    scenario = SCENARIOS["slow-few"]
    result = measure(scenario, run(scenario, Fixed(10**9), 0))
    assert result.goodput < 0.2
    assert result.recovery == 99
    assert not result.held


@pytest.mark.parametrize("name", ["flood-5x", "slow-dependency", "hang"])
def test_the_adaptive_estimator_holds(name):
    """A flood, a slow dependency and a hang, each for one seed; `headgate overload` runs them all."""
    scenario = SCENARIOS[name]
    assert measure(scenario, run(scenario, Adaptive(), 1)).held


def overloaded(scenario, seed=0):
    """The records of each stream, and the ten seconds of the overload that count."""
    (calm, usual), (_, overload), *_ = scenario.load
    return run(replace(scenario, load=((calm, usual), (20, overload))), Adaptive(), seed), range(calm + 10, calm + 20)


def served(records, seconds):
    """Answers in time of each stream: as a part of its calls, and in all."""
    good = [sum(record.good[second] for second in seconds) for record in records]
    wanted = [sum(record.wanted[second] for second in seconds) for record in records]
    return [each / all_ for each, all_ in zip(good, wanted, strict=True)], good


def test_critical_requests_are_served_under_five_times_the_load():
    """At 5 times the peak, 99.5 % of critical requests are answered in time, and 0.95 of the peak in all.

    The 99th percentile of their latency is at most 1.4 times the one without load.
    """
    records, seconds = overloaded(CRITICAL)
    (critical, _), good = served(records, seconds)
    assert critical >= 0.995
    assert sum(good) >= 0.95 * 10 * 400
    world = World(0)
    alone = percentile([int(CRITICAL.unloaded(world)) for _ in range(20_000)], 0.99)
    assert percentile([each for second in seconds for each in records[0].latencies[second]], 0.99) <= 1.4 * alone


def test_greedy_tenants_share_evenly():
    """Ten tenants that want all of the service have a tenth of it each: Jain's index is 0.99 or more."""
    _, good = served(*overloaded(GREEDY))
    assert sum(good) ** 2 / (len(good) * sum(each**2 for each in good)) >= 0.99
    assert min(good) >= 0.9 * sum(good) / len(good)


def test_quiet_tenants_do_not_feel_a_noisy_one():
    """One tenant at 5 times the peak: 95 % of the requests of the quiet ones are answered in time."""
    parts, _ = served(*overloaded(NOISY))
    assert min(parts[1:]) >= 0.95


def test_the_table_counts_what_is_held():
    """A line for each scenario, a column for each estimator, and how many each holds."""
    text = table({("flood", "none"): Result(0.1, 120.0, 99), ("flood", "adaptive"): Result(0.9, 3.0, 10)})
    assert text.splitlines() == [
        "                                 none             adaptive",
        "flood              0.10  >99x never     0.90  3.0x  10 s *",
        "held of 1                         0                    1  ",
    ]
    assert list(MAKERS) == ["none", "aimd", "vegas", "gradient2", "adaptive"]
