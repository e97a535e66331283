"""Leases and the rest of the API: refunds, reservations, peeks, resets, several limits; threads and event loops."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headgate import Lease, Limit, MemoryStore
from headgate.engine.lease_cache import leased_tokens_for
from headgate.stores.gate import Gate
from headgate.stores.leases import ledger
from headgate.stores.redis import RedisStore
from headgate.testing import ManualClock
from tests.support.inside import bound_of
from tests.support.inside_leases import leases_ending, leases_held, peek_steps
from tests.support.leasing import BUCKET, EVERY_KIND, MOST, WINDOW, Bank, drain, held, open_bank, warm


@pytest.fixture(params=["threads", "tasks"])
def bank(server, request) -> Iterator[Bank]:
    with open_bank(server, request.param) as bank:
        yield bank


def leased(limiter, key: str = "k", cost: int = 1):
    """A decision that was paid from a lease."""
    warm(limiter, key)
    decision = limiter.hit(key, cost)
    assert decision._answers[4] < 0
    return decision


@EVERY_KIND
def test_a_refund_is_in_the_lease_again(bank, limit):
    """A refunded cost can be spent here at once, without a question."""
    limiter = bank.limiter(limit)
    decision = leased(limiter, cost=5)
    with bank.asked(0):
        limiter.refund(decision)
        assert limiter.hit("k").remaining == decision.remaining + 5 - 1
    limiter.close()
    assert bank.charged(limit) == 51


@EVERY_KIND
def test_parts_of_a_decision_are_refunded_once_each(bank, limit):
    """Refunds in parts give back what the decision charged, and no more."""
    limiter = bank.limiter(limit)
    decision = leased(limiter, cost=5)
    for part in (2, 2, 2, None):
        limiter.refund(decision, part)
    limiter.close()
    assert bank.charged(limit) == 50


@EVERY_KIND
def test_a_refund_after_its_lease_was_spent_goes_to_the_server(bank, limit):
    """A decision whose lease is gone is given back at the server, once."""
    limiter = bank.limiter(limit)
    decision = leased(limiter, cost=5)
    warm(limiter, hits=500)
    for part in (3, None, None):
        limiter.refund(decision, part)
    limiter.close()
    assert bank.charged(limit) == 550


@EVERY_KIND
def test_a_refund_after_everything_was_given_back_goes_to_the_server(bank, limit):
    """A closed limiter refunds with one question, and not a second time."""
    limiter = bank.limiter(limit)
    decision = leased(limiter, cost=5)
    limiter.close()
    assert bank.charged(limit) == 55
    with bank.asked(1):
        limiter.refund(decision)
    with bank.asked(0):
        limiter.refund(decision)
    assert bank.charged(limit) == 50


def test_a_refund_of_a_void_lease_counts_from_the_grant(bank):
    """Two seconds later at `1/second` only three of five units have not come back by themselves."""
    limit = "1/second burst 3000"
    limiter = bank.limiter(limit)
    decision = leased(limiter, cost=5)
    limiter.close()
    bank.clock.advance(2)
    assert bank.charged(limit) == 53
    limiter.refund(decision)
    assert bank.charged(limit) == 50


def test_a_refund_of_a_window_that_is_over_gives_nothing(bank):
    """A decision of the window before leaves the new window as it is."""
    limiter = bank.limiter(WINDOW)
    decision = leased(limiter, cost=5)
    bank.clock.advance(800)
    limiter.hit("k", 7)
    limiter.refund(decision)
    limiter.close()
    assert bank.charged(WINDOW) == 7


def test_units_of_a_key_are_refunded_at_the_server(bank):
    """A refund by key is no matter of the lease."""
    limiter = bank.limiter(WINDOW)
    warm(limiter)
    limiter.refund("k", 20)
    limiter.close()
    assert bank.charged(WINDOW) == 30


def test_a_decision_of_another_limiter_is_refunded_by_its_own_numbers_or_not_at_all(bank):
    """Serials are each ledger's own: a stranger's never pays for another key."""
    one, two = bank.limiter(WINDOW), bank.limiter(WINDOW)
    decision = leased(one, "a")
    warm(two, "b", hits=500)
    two.close()
    two.refund(decision)
    two.close()
    assert bank.charged(WINDOW, "b") == 500
    one.close()
    assert 50 <= bank.charged(WINDOW, "a") <= 51


def test_a_reservation_from_a_lease_is_settled_to_it(bank):
    """A reservation that cost less gives the rest back to the lease."""
    limiter = bank.limiter(BUCKET)
    warm(limiter)
    with bank.asked(0):
        reservation = limiter.reserve("k", 10)
        assert (bool(reservation), reservation.delay) == (True, 0.0)
    settle = reservation.settle(4)
    if settle is not None:
        bank._run(settle)
    limiter.close()
    assert bank.charged() == 54


def test_what_costs_more_than_reserved_is_owed_at_the_server(bank):
    """A reservation that cost more charges the difference at the server."""
    limiter = bank.limiter(BUCKET)
    warm(limiter)
    settle = limiter.reserve("k", 10).settle(17)
    if settle is not None:
        bank._run(settle)
    limiter.close()
    assert bank.charged() == 67


def test_a_reservation_that_does_not_fit_the_lease_is_the_servers(bank):
    """Large reservations are the server's, with the delays that it tells."""
    limit = "10/second burst 3000"
    limiter = bank.limiter(limit)
    warm(limiter)
    limiter.close()
    assert limiter.reserve("k", 900).delay == 0.0
    assert limiter.reserve("k", 2100).delay == 5.0
    assert bank.charged(limit) == MOST


@EVERY_KIND
def test_who_acquires_spends_the_lease_first(bank, limit):
    """Acquired tokens come from the lease without a question; a cost beyond it is asked for."""
    limiter = bank.limiter(limit)
    warm(limiter)
    with bank.asked(0):
        assert all(limiter.acquire("k").allowed for _ in range(10))
    assert limiter.acquire("k", 900, timeout=0).allowed
    assert not limiter.acquire("k", MOST - 100, timeout=0).allowed
    limiter.close()
    assert bank.charged(limit) == 960


def test_peeking_writes_nothing_and_says_what_a_hit_would(bank):
    """Peeks of any cost leave the charge as it is, and tell what is there now."""
    limiter = bank.limiter(WINDOW)
    warm(limiter)
    charged = bank.charged(WINDOW)
    for cost in (1, 5, 1, 0, 900):
        seen, again = limiter.peek("k", cost), limiter.peek("k", cost)
        assert (seen.allowed, seen.remaining, seen.reset_us) == (True, again.remaining, again.reset_us)
        limiter.refund(seen)
    assert limiter.peek("k").remaining == MOST - 50
    assert bank.charged(WINDOW) == charged
    assert limiter.hit("k").remaining == MOST - 51
    limiter.close()
    assert bank.charged(WINDOW) == 51
    assert not limiter.peek("k", MOST).allowed


@EVERY_KIND
@pytest.mark.parametrize("hits", [24, 25, 50, 106])
def test_a_peek_counts_what_this_process_holds(bank, limit, hits):
    """The remaining units are those that hits from here would get: of the lease, of the one that was bought ahead,
    and of the server."""
    limiter = bank.limiter(limit)
    warm(limiter, hits=hits)
    bank.until(lambda: bank.charged(limit) > hits, "what was bought ahead has come")
    assert [limiter.peek("k", cost).remaining for cost in (0, 1, 7)] == [MOST - hits] * 3
    assert drain(limiter) == MOST - hits
    assert limiter.peek("k", 0).remaining == 0
    assert not limiter.peek("k").allowed


@EVERY_KIND
def test_a_peek_knows_what_others_took_since_the_lease_was_bought(bank, limit):
    """The remainder is the server's of now and what is held here."""
    limiter = bank.limiter(limit)
    warm(limiter)
    bank.plain(limit).hit("k", 1000)
    assert limiter.peek("k").remaining == MOST - 1050
    assert drain(limiter) == MOST - 1050


def test_a_peek_does_not_count_permits_that_are_void(bank):
    """Tokens are counted to the last microsecond of their validity, and not at it."""
    limiter = bank.limiter(WINDOW, lease=Lease(validity=2))
    warm(limiter)
    bank.clock.us += 1_999_999  # not told: nothing is given back yet
    assert limiter.peek("k", 0).remaining == MOST - 50
    bank.clock.us += 1
    assert limiter.peek("k", 0).remaining == MOST - bank.charged(WINDOW) < MOST - 50


def test_a_peek_of_a_plan_counts_what_such_a_hit_may_spend(bank):
    """A plan is asked for at the server, so the lease does not serve it."""
    limit = f"{WINDOW} as api"
    limiter = bank.limiter(limit)
    warm(limiter)
    left = MOST - bank.charged(limit)
    assert limiter.peek("k", limit=f"{2 * MOST}/hour by fixed-window as api").remaining == MOST + left


def test_a_peek_does_not_count_twice_what_is_bought_while_it_asks(server):
    """A purchase during the question is not added to an answer from before it."""
    with open_bank(server) as bank:
        limiter = bank.limiter(WINDOW)
        warm(limiter)
        left, gate = MOST - bank.charged(WINDOW), bound_of(limiter)
        steps = peek_steps(gate, "k", 0)
        reply = gate.space.topology.exchange(next(steps))
        warm(limiter, hits=500)
        with pytest.raises(StopIteration) as done:
            steps.send((reply, 0))
        assert held(limiter) > 0
        assert done.value.value.remaining == left  # what was held then is spent


@pytest.mark.parametrize("on_error", ["local", "deny"])
def test_a_peek_while_the_server_is_away_counts_what_is_held(server, proxy, on_error):
    """Beside it, what this process may admit alone."""
    with open_bank(server, url=proxy.url) as bank:
        limiter = bank.limiter(WINDOW, on_error=on_error)
        warm(limiter)
        held = bank.charged(WINDOW) - 50
        proxy.refuse()
        proxy.reset()
        alone = MOST if on_error == "local" else 0
        seen = limiter.peek("k", 3)
        assert (seen.allowed, seen.remaining, seen.retry_after, seen.degraded) == (True, alone + held, 0.0, True)
        assert limiter.peek("k", MOST).allowed == (on_error == "local")
        proxy.accept()


def test_a_peek_of_a_cost_that_no_lease_covers_is_what_the_server_says_of_it(bank):
    """A cost beyond the lease is allowed or refused as a hit of it would be."""
    limiter = bank.limiter(WINDOW)
    warm(limiter)
    held = bank.charged(WINDOW) - 50
    assert 10 < held < 900
    assert limiter.peek("k", 900).remaining == MOST - 50
    refused = limiter.peek("k", MOST - 50)
    assert (refused.allowed, refused.remaining, refused.retry_after) == (False, MOST - 50, 800.0)
    assert limiter.hit("k", 900).allowed


def test_a_key_that_is_reset_is_as_new(bank):
    """Tokens that were bought before are neither spent nor given back."""
    limiter = bank.limiter(WINDOW)
    warm(limiter)
    limiter.reset("k")
    assert bank.charged(WINDOW) == 0
    with bank.asked(1):
        assert limiter.hit("k").remaining == MOST - 1
    limiter.close()
    assert bank.charged(WINDOW) == 1
    assert drain(limiter) == MOST - 1


def test_a_reset_leaves_other_keys_alone(bank):
    """The lease of another key is spent without a question after a reset."""
    limiter = bank.limiter(WINDOW)
    warm(limiter, "a")
    warm(limiter, "b")
    limiter.reset("a")
    with bank.asked(0):
        assert limiter.hit("b")
    limiter.close()
    assert (bank.charged(WINDOW, "a"), bank.charged(WINDOW, "b")) == (0, 51)


def test_a_store_that_is_cleared_makes_every_key_as_new(bank):
    """After `clear` no lease of the namespace is spent, and each key has all of its limit."""
    limiter = bank.limiter(WINDOW)
    warm(limiter, "a")
    warm(limiter, "b")
    bank.store.clear("default")
    with bank.asked(2):
        assert [limiter.hit(key).remaining for key in "ab"] == [MOST - 1, MOST - 1]
    limiter.close()
    assert (bank.charged(WINDOW, "a"), bank.charged(WINDOW, "b")) == (1, 1)


def test_a_namespace_that_is_cleared_leaves_the_leases_of_others(bank):
    """The other namespace goes on without a question."""
    one, two = bank.limiter(namespace="one"), bank.limiter(namespace="two")
    warm(one)
    warm(two)
    bank.store.clear("one")
    with bank.asked(0):
        assert two.hit("k")
    with bank.asked(1):
        assert one.hit("k").remaining == MOST - 1


def test_namespaces_do_not_share_leases(bank):
    """Tokens of one namespace are not spent in another."""
    one, two = bank.limiter(namespace="one"), bank.limiter(namespace="two")
    warm(one, hits=300)
    assert two.hit("k").remaining == MOST - 1
    one.close()
    two.close()
    assert (bank.charged(namespace="one"), bank.charged(namespace="two")) == (300, 1)


SEVERAL = ("1/hour burst 2000", "500/hour by fixed-window as tight", "100000/day by fixed-window")


def test_several_limits_are_charged_together_and_told_apart(bank):
    """Verdicts and the limit that binds are those of a limiter without leases."""
    limiter = bank.limiter(*SEVERAL)
    plain = bank.plain(*SEVERAL, namespace="twin")
    for _ in range(200):
        ours, twins = limiter.hit("k"), plain.hit("k")
        assert ours.binding == twins.binding
        assert [each[:3] for each in ours.verdicts] == [each[:3] for each in twins.verdicts]
    limiter.close()
    assert [bank.charged(limit) for limit in SEVERAL] == [200, 200, 200]


def test_of_several_limits_the_tightest_decides_to_the_last_permit(bank):
    """Three limiters admit the smallest limit together, and each limit is charged as much."""
    limiters = [bank.limiter(*SEVERAL) for _ in range(3)]
    assert sum(limiter.hit("k").allowed for _ in range(300) for limiter in limiters) == 500
    assert [bank.charged(limit) for limit in SEVERAL] == [500, 500, 500]


def test_a_lease_takes_its_share_of_what_is_left_of_every_limit(bank):
    """The limit that binds need not be the one that has least left."""
    limits = ("10000/hour by fixed-window", "500/day by fixed-window as tight")
    bank.plain(limits[0]).hit("k", 9300)
    limiter = bank.limiter(*limits)
    left = 500
    while limiter.hit("k"):
        now = 500 - bank.charged(limits[1])
        assert left - now <= 1 + left * 0.1
        left = now
    assert left == 0


def test_costs_by_name_and_whole_numbers_charge_the_same_states(bank):
    """A cost by name goes to the server, beside leases of the same limits."""
    limits = "2000/hour by fixed-window as rpm; 1/hour burst 3000 as tpm"
    limiter = bank.limiter(limits)
    warm(limiter)
    assert limiter.hit("k", {"rpm": 1, "tpm": 500}).allowed
    limiter.close()
    rpm, tpm = limits.split("; ")
    assert (bank.charged(rpm), bank.charged(tpm)) == (51, 550)


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
