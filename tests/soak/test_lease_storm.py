"""A thousand worlds of nodes that lease, then others, for as long as SOAK_SECONDS says (default 120)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import chain, count

import pytest

from tests.support.lease_laws import admitted, equal, fairness, try_out, try_out_sliding, unequal, violations
from tests.support.lease_setup import Setup
from tests.support.lease_world import World
from tests.support.soaking import SECONDS, fresh_seed

pytestmark = pytest.mark.soak


def until_time_is_up() -> Iterator[int]:
    """The thousand, then fresh seeds; a failure names its seed."""
    end = time.monotonic() + SECONDS
    for seed in chain(range(1000), count(fresh_seed())):
        yield seed
        if time.monotonic() >= end:
            return


def test_a_thousand_worlds():
    """Storms and ambushes: no bound is exceeded, and every unit is accounted for."""
    tried = 0
    for tried, seed in enumerate(until_time_is_up(), 1):  # noqa: B007
        assert (seed, try_out(seed)) == (seed, [])
    print(tried, "worlds")


def test_sliding_windows_under_any_load():
    """Storms, ambushes and overload on sliding windows: no bound is exceeded, and every unit is accounted for."""
    tried = 0
    for tried, seed in enumerate(until_time_is_up(), 1):  # noqa: B007
        assert (seed, try_out_sliding(seed)) == (seed, [])
    print(tried, "worlds")


@pytest.mark.parametrize(
    ("limits", "awaited"),
    [
        ("10000/second", "yes"), ("10000/second burst 1000", "no"), ("20000/2s by fixed-window", "half"),
        ("10000/second by sliding-window", "half"), ("20000/2s by sliding-window/20", "half"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("shape", [equal, unequal])
def test_a_thousand_nodes(limits, shape, awaited):
    """In trouble, below their limit and beyond it."""
    for each in (7_000, 20_000):
        setup = Setup(
            seed=each,
            limits=limits,
            phases=shape(1000, each),
            seconds=1.5,
            awaited=awaited,
            loss=0.001,
            crashes=0.02,
            partitions=0.02,
            skewed_clocks=True,
            drift_ppm=100,
        )
        world = World(setup).run(close=True)
        assert violations(world) == []
        # In so short a time a node has two or three turns; and below the limit its demand alone, a chance number of
        # about ten requests, has an index of 0.91.
        assert shape is unequal or fairness(world) > 0.8


@pytest.mark.parametrize("limits", ["10000/second", "10000/second burst 1000"])
def test_a_thousand_nodes_above_their_limit_share_it_alike(limits):
    """The nodes want twice the limit for four seconds, by 2,000 questions a second, also with a small burst."""
    world = World(
        Setup(seed=1, limits=limits, phases=equal(1000, 20_000), seconds=5.0, awaited="half", threads=4)
    ).run()
    assert violations(world) == []
    assert max(world.ledger.by_second[second] for second in range(5)) <= 2000
    assert admitted(world, since=1.0) >= 0.97 * 4 * 10_000
    assert fairness(world, since=1.0) >= 0.95
