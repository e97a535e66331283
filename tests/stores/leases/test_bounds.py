"""The bounds of leases: how many a process holds, from which cost on they begin, and how processes are counted."""

from __future__ import annotations

import pytest

from headgate import Lease, Limit, MemoryStore
from headgate.engine.lease_cache import leased_tokens_for
from headgate.stores.gate import Gate
from headgate.stores.leases import ledger
from headgate.stores.redis import RedisStore
from headgate.testing import ManualClock
from tests.support.inside_leases import leases_ending, leases_held
from tests.support.leasing import BUCKET, EVERY_KIND, WINDOW, held, warm


@EVERY_KIND
def test_memory_is_bounded_and_what_is_given_up_is_given_back(bank, limit, monkeypatch):
    """Hot keys, many more than may be held."""
    monkeypatch.setattr(ledger, "MOST", 40)
    limiter = bank.limiter(limit)
    keys = [f"k{number}" for number in range(200)]
    assert all(limiter.hit(key, 3).allowed for key in keys for _ in range(4))
    limiter.close()
    assert {bank.charged(limit, key) for key in keys} == {12}


def test_a_hot_key_outlives_a_flood_of_cold_ones(bank, monkeypatch):
    """Given up are those that have bought nothing for the longest time."""
    monkeypatch.setattr(ledger, "MOST", 40)
    limiter = bank.limiter("1/hour burst 70000")
    warm(limiter, "hot")
    for number in range(100):
        limiter.hit(f"cold{number}")
        if number % 20 == 0:
            bank.clock.advance(1)
            warm(limiter, "hot")
        assert held(limiter, "hot")


def test_fifteen_thousand_hot_keys_keep_at_most_ten_thousand_leases():
    """The ledger alone, with a memory store for a server; and a validity that outlasts the test."""
    clock, limits = ManualClock(1e9), (Limit.parse(WINDOW),)
    store = MemoryStore(clock=clock)
    server = Gate(store, "server", limits)
    tokens = leased_tokens_for(store.bind("node", limits), lambda *_: pytest.fail("not asked"))
    own = ledger.LeaseLedger(limits, Lease(validity=3600), tokens, clock.now_us)
    bought = given = 0
    for number in range(15_000):
        key = f"k{number}"
        own.wanted(key, 3)
        own.saw(key, server.hit(key, 3))
        question = own.asking(key, 3, 10)
        assert question is not None
        decision = server.take_up_to(key, own.wanted(key, 3) + 7)
        own.granted(key, question[0], clock.now_us(), decision, (20_000, False))
        bought += decision.granted
        assert own.spend(key, 3) is not None
        given += sum(each.units for each in own.unused(4))
    assert len(leases_held(own)) <= ledger.MOST == 10_000
    assert len(tokens.leases) <= ledger.MOST
    assert len(leases_ending(own)) <= ledger.MOST
    given += sum(each.units for each in own.unused(-1))
    assert bought - given == 3 * 15_000


def test_a_lease_is_filled_up_to_its_bound():
    """Units that come back to a lease never make it larger than what the server has granted."""
    limits = (Limit.parse(WINDOW),)
    tokens = leased_tokens_for(MemoryStore().bind("node", limits), lambda *_: pytest.fail("not asked"))
    lease = tokens.open("k")
    for units, most, there in ((3, 10, 3), (7, 10, 10), (1, 10, 10), (5, 12, 12)):
        tokens.fill(lease, units, most)
        assert lease.tokens == there


def test_tokens_of_a_lease_that_has_ended_go_back_unspent():
    """The next lease pays alone: of seven tokens whose validity is over none is spent, and seven are given back."""
    clock, limits = ManualClock(1e9), (Limit.parse(WINDOW),)
    store = MemoryStore(clock=clock)
    server = Gate(store, "server", limits)
    tokens = leased_tokens_for(store.bind("node", limits), lambda *_: pytest.fail("not asked"))
    own = ledger.LeaseLedger(limits, Lease(validity=10), tokens, clock.now_us)

    def buy() -> None:
        question = own.asking("k", 1, 8)
        assert question is not None
        own.granted("k", question[0], clock.now_us(), server.take_up_to("k", 8), (20_000, False))

    buy()
    assert own.spend("k", 1) is not None
    clock.advance(5)
    buy()
    clock.advance(5)
    assert own.spend("k", 3) is not None
    assert ([each.units for each in own.unused(None)], tokens.leases["k"].tokens) == ([7], 5)


@pytest.mark.parametrize("floor", [2, 4, 5, 8, 50])
def test_leases_begin_whatever_the_floor(bank, floor):
    """500 hits take fewer than 30 questions for any floor."""
    limiter = bank.limiter(lease=Lease(floor=floor))
    before = bank.trips()
    warm(limiter, hits=500)
    assert bank.trips() - before < 30


def test_a_user_may_call_limits_and_keys_what_the_census_is_called(bank):
    """A limit and a key named `nodes` do not meet the heartbeat of processes."""
    warm(bank.limiter(BUCKET))
    limits = "3000/hour as nodes"
    limiter = bank.limiter(limits)
    assert warm(limiter, "nodes", hits=500) == 500
    limiter.close()
    assert bank.charged(limits, "nodes") == 500


def test_one_process_is_counted_once_however_many_limiters_it_has(bank):
    """The heartbeat has one entry for each store object, which ends within a minute."""
    limiters = [bank.limiter(f"{number}000/hour by fixed-window") for number in range(1, 5)]
    for limiter in limiters:
        warm(limiter)
    (heartbeat,) = [name for name in bank.server.client().scan_iter() if bank.server.client().type(name) == b"zset"]
    assert bank.server.client().zcard(heartbeat) == 1
    other = RedisStore(bank.server.url, clock=bank.clock)
    more = bank.limiter(WINDOW, store=other)
    warm(more)
    assert bank.server.client().zcard(heartbeat) == 2
    assert 0 < bank.server.client().pttl(heartbeat) <= 60_000
    if bank._run is not None:
        bank._run(other.aclose())
    other.close()
