"""Long storms of permits, whose holders are killed, stopped, forked; SOAK_SECONDS=120 runs all of it, less a part."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from headgate.engine import NATIVE
from tests.limiter.in_flight.test_permits_processes import folder_of
from tests.support.holding import Crowd, Holder, damage
from tests.support.homes import Home, home_of
from tests.support.processes import CONTEXT
from tests.support.servers import wait_until
from tests.support.soaking import SECONDS, fresh_seed

pytestmark = pytest.mark.soak
shares = pytest.mark.skipif(not NATIVE, reason="shared stores need the native engine")

PART = min(1.0, SECONDS / 120)
WITHIN = {"shared": 1.0, "redis": 1.0 + 0.25}
"""Seconds after which what the dead held is free: on a server it is the lease, and a moment to find out."""


@pytest.fixture(params=["shared", "redis"])
def home(request) -> Iterator[Home]:
    with home_of(request.param) as home:
        yield home


def test_two_hundred_killed_holders_free_their_permits_in_time(home):
    """Ten rounds of twenty, each killed at a random moment; living processes keep their permits."""
    chance, text = random.Random(fresh_seed()), "50 in flight ttl 1s"
    limiter = home.limiter(text)
    mine = limiter.permit("k", 10)
    for _ in range(max(1, round(10 * PART))):
        with ExitStack() as stack:
            holders = [stack.enter_context(Holder(home.url, text)) for _ in range(20)]
            assert [holder.take(1, cost=2) for holder in holders] == [1] * 20
            assert not limiter.permit("k")
            time.sleep(chance.random())
            for holder in holders:
                holder.kill()
            wait_until(lambda: limiter.peek("k", 40), "what they held is free", WITHIN[home.kind])
            assert [each.units for each in limiter.holders("k")] == [10]
    assert mine.release()
    assert limiter.peek("k", 50)


STORMS = {
    "shared": ("shared", "4 in flight", 4, 0.3),
    "a server": ("redis", "8 in flight ttl 2s", 8, 0.3),
    # Of the one that is stopped for longer than its lease, two units at most are given to others meanwhile.
    "a server, leases outlived": ("redis", "8 in flight ttl 500ms", 8 + 2, 1.5),
}


@pytest.mark.parametrize("storm", STORMS)
def test_a_storm_of_kills_stops_and_forks_never_lets_too_many_in(tmp_path, storm):
    """As a witness sees it at every instant; and in the end nothing is held any more."""
    kind, text, most, longest_stop = STORMS[storm]
    seed, seconds = fresh_seed(), SECONDS / 4
    print("seed", seed)
    with (
        home_of(kind) as home,
        Crowd(home.url, text, tmp_path / "witness", most, places=10_000, longest=0.01, forks=0.01) as crowd,
    ):
        crowd.start(8, seconds)
        disturb(crowd, random.Random(seed), longest_stop)
        crowd.join()
        assert crowd.violations == 0
        assert sum(crowd.admitted) > 50 * seconds
        limiter = home.limiter(text)
        wait_until(lambda: limiter.holders("k") == [], "nothing is held any more", 3.0)
        assert limiter.peek("k", limiter.limits[0].amount)


def disturb(crowd: Crowd, chance: random.Random, longest_stop: float) -> None:
    """Until time is almost up."""
    while time.monotonic() < crowd.end - 0.5:
        number = chance.randrange(len(crowd.workers))
        if chance.random() < 0.5:
            crowd.replace(number)
        else:
            os.kill(crowd.workers[number].pid, signal.SIGSTOP)
            time.sleep(chance.random() * longest_stop)
            os.kill(crowd.workers[number].pid, signal.SIGCONT)
        time.sleep(chance.random() * 0.1)


@shares
def test_thousands_of_damaged_tables():
    """Random damage to tables of permits never crashes a process."""
    rounds, seed = int(5_000 * max(PART, 0.02)), fresh_seed()
    with home_of("shared") as home:
        process = CONTEXT.Process(target=damage, args=(folder_of(home.url), rounds, seed))
        process.start()
        process.join(60 + rounds / 20)
        assert process.exitcode == 0, seed
