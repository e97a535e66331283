"""Leases and the rest of the API: refunds, reservations, resets, several limits; threads and event loops."""

from __future__ import annotations

from tests.support.leasing import BUCKET, EVERY_KIND, MOST, WINDOW, drain, warm


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
