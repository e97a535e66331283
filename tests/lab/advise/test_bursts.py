"""The burst that each client needs: exact, by the engine itself."""

from __future__ import annotations

from collections import defaultdict
from random import Random

import pytest

from headgate import Limit, Limiter
from headgate.clock import MINUTE, SECOND, HandClock
from headgate.lab.advise.bursts import BATCH, Client, measure
from headgate.lab.logs import Log
from tests.support.traces import trace

pytestmark = pytest.mark.engineless

RATES = [Limit(amount, per="minute") for amount in (1, 7, 60)]
ODD = Limit(999_999_999, per="day")
"""A rate whose interval is rounded."""


def row(time, key="ann", cost=1, status=200):
    """A request of a log."""
    return time, key, cost, "GET", "/", status


def refusals(requests, limit):
    """How many of one client's requests the engine refuses."""
    clock = HandClock()
    limiter, refused = Limiter(limit, clock=clock), 0
    for clock.us, cost in requests:
        refused += not limiter.hit("k", cost)
    return refused


def check(requests, client, at, limit):
    """The burst refuses none of the client's requests, and one less refuses some, or is no burst."""
    burst = client.bursts[at]
    assert refusals(requests, limit.replace(burst=burst)) == 0
    if burst > 1:
        assert refusals(requests, limit.replace(burst=burst - 1)) > 0


def test_a_ledger():
    """One a second drains; 3 at 0 s, 2 at 1 s and 1 at 1.5 s stand at 3, then 2 + 2 = 4, then 3.5 + 1: 5 are needed."""
    times = [0, 0, 0, SECOND, SECOND, SECOND * 3 // 2]
    assert measure(map(row, times), [Limit(1, per="second")], SECOND) == [Client("ann", 6, 0, 3, (5,))]


def test_the_most_in_a_window():
    """A window of a second holds instants that are less than a second apart: 0 and 1 s are not in one."""
    times = [0, SECOND // 2, SECOND, SECOND, 3 * SECOND, 4 * SECOND - 1]
    (client,) = measure(map(row, times), RATES, SECOND)
    assert client.most == 3


def test_clients_are_apart_and_errors_are_counted():
    """Each client has its own bucket; answers from 400 on are errors, in the order in which clients came."""
    requests = [row(0, "ann"), row(1, "bob", status=400), row(2, "ann", status=399), row(3, "bob", status=503)]
    found = measure(requests, RATES, MINUTE)
    assert found == [Client("ann", 2, 0, 2, (2, 2, 2)), Client("bob", 2, 2, 2, (2, 2, 2))]


def test_a_request_of_cost_0_needs_nothing():
    """A request that costs nothing is counted and needs no burst; one of cost 9 needs 9 at least."""
    assert measure([row(0, cost=0)], RATES, MINUTE) == [Client("ann", 1, 0, 1, (0, 0, 0))]
    assert measure([row(0, cost=9)], RATES, MINUTE) == [Client("ann", 1, 0, 1, (9, 9, 9))]


@pytest.mark.parametrize("count", [1, BATCH - 1, BATCH, BATCH + 1, 3 * BATCH])
def test_batches_do_not_show(count):
    """However many requests fill a batch, all are poured: `count` at one instant need a burst of `count`."""
    assert measure([row(0)] * count, RATES, MINUTE) == [Client("ann", count, 0, count, (count,) * 3)]


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("costs", [(1,), (0, 1, 1, 2, 5)], ids=["ones", "costs"])
def test_the_burst_is_exact_on_random_traces(seed, costs):
    """With that burst the engine refuses nothing, with one less something; the most in a minute is counted by force."""
    chance, now, requests = Random(seed), 1_700_000_000 * SECOND, defaultdict(list)
    gaps = [0, 0, 1, 999_999, SECOND, 60 * SECOND // 7, chance.randrange(MINUTE), 5 * MINUTE]
    rows = []
    for _ in range(300):
        now += chance.choice(gaps)
        key, cost = chance.choice("ab"), chance.choice(costs)
        rows.append(row(now, key, cost))
        requests[key].append((now, cost))
    limits = [*RATES, ODD]
    for client in measure(rows, limits, MINUTE):
        own = requests[client.key]
        assert client.requests == len(own)
        assert client.most == max(sum(start <= time < start + MINUTE for time, _ in own) for start, _ in own)
        for at, limit in enumerate(limits):
            check(own, client, at, limit)


@pytest.mark.parametrize(
    "name", ["nginx-erddap-api-2024.log.gz", pytest.param("apache-wordpress-2016.log.gz", marks=pytest.mark.soak)]
)
def test_the_burst_is_exact_on_real_logs(name):
    """At three rates the engine agrees, for each client of a real log, or the 300 that need most of the larger one."""
    rows = [tuple(each) for each in Log([trace(name)])]
    requests = defaultdict(list)
    for time, key, cost, *_ in rows:
        requests[key].append((time, cost))
    clients = measure(rows, RATES, MINUTE)
    assert len(clients) == len(requests)
    for client in sorted(clients, key=lambda each: -max(each.bursts))[:300]:
        for at, limit in enumerate(RATES):
            check(requests[client.key], client, at, limit)
