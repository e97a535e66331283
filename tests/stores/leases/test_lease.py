"""Leases: tokens are charged at the server before they can be spent, spent at memory speed, and never twice.

Virtual time, real servers; everything here holds for threads and for event loops alike.
"""

from __future__ import annotations

import math

import pytest

from headgate import AsyncLimiter, InvalidCall, InvalidLimit, Lease, Limiter
from headgate.engine import NATIVE
from tests.support.leasing import EVERY_KIND, MOST, START, WINDOW, drain, warm


@pytest.mark.parametrize("kind", [Limiter, AsyncLimiter])
@pytest.mark.parametrize("limits", ["10/minute by sliding-log", "10/second; 10/minute by sliding-log"])
def test_a_log_cannot_be_leased(bank, kind, limits):
    """A log is exact, and tokens are spent after their charge: an `InvalidLimit`, alone or beside another limit."""
    why = "a log counts each unit at its instant, and leased tokens are spent later; use sliding-window/60"
    with pytest.raises(InvalidLimit, match=f"^10/minute by sliding-log cannot be leased: {why}$"):
        kind(limits, store=bank.store, lease=True)


@pytest.mark.parametrize("limit", ["10/minute block 1h", "10/minute by fixed-window block 1h"])
def test_a_block_cannot_be_leased(bank, limit):
    """A block has to hold in every process at once, so that a lease of it is an `InvalidLimit`."""
    with pytest.raises(InvalidLimit, match="a block must hold at once"):
        Limiter(limit, store=bank.store, lease=True)


@pytest.mark.parametrize("kind", [Limiter, AsyncLimiter])
@pytest.mark.parametrize(
    "store",
    [
        None, "memory://",
        pytest.param("shared://{}", marks=pytest.mark.skipif(not NATIVE, reason="shared stores are native")),
    ],
)  # fmt: skip
def test_only_a_server_sells_leases(tmp_path, kind, store):
    """Leases on stores of this process or host are an `InvalidCall`."""
    with pytest.raises(InvalidCall, match="lease needs a store on a server"):
        kind("10/second", store=store and store.format(tmp_path / "s"), lease=True)


WRONG = {
    ("validity", "valid for 0.001 to 3600 seconds"): [0, 0.0009, 3600.1, -1, math.inf, math.nan, True, "1", None],
    ("share", "above 0 and at most 1"): [0, -0.1, 1.01, math.nan, True, "0.1", None],
    ("floor", "whole number from 2"): [1, 0, -4, 4.0, True, "4", None],
}


@pytest.mark.parametrize(("name", "why", "value"), [(*what, value) for what, each in WRONG.items() for value in each])
def test_terms_that_make_no_sense_are_refused(name, why, value):
    """A validity, a share or a floor out of range is an `InvalidCall` with its reason."""
    with pytest.raises(InvalidCall, match=why):
        Lease(**{name: value})


@pytest.mark.parametrize("lease", ["yes", 1, 0.5, {"validity": 1}])
def test_terms_are_true_or_a_lease(bank, lease):
    """Anything else as `lease` is an `InvalidCall`."""
    with pytest.raises(InvalidCall, match="lease is True or a Lease"):
        bank.limiter(lease=lease)


@pytest.mark.parametrize("lease", [True, Lease(), Lease(validity=0.5, share=0.05, floor=8), Lease(share=1, floor=2)])
@EVERY_KIND
def test_every_hit_is_counted_once_and_what_was_not_spent_comes_back(bank, limit, lease):
    """A lone limiter says after each hit exactly what one without leases would, for far fewer questions."""
    limiter = bank.limiter(limit, lease=lease)
    before = bank.trips()
    assert [limiter.hit("k").remaining for _ in range(1000)] == list(range(MOST - 1, MOST - 1001, -1))
    assert bank.trips() - before <= 30
    assert bank.charged(limit) > 1000
    limiter.close()
    assert bank.charged(limit) == 1000
    with bank.asked(1):  # the peek itself
        limiter.close()
        assert bank.charged(limit) == 1000
    assert limiter.hit("k").remaining < MOST - 1000  # not of what was given back
    limiter.close()
    assert bank.charged(limit) == 1001


@pytest.mark.filterwarnings("ignore:.* the two-counter estimate is coarse:headgate.LimitWarning")
@pytest.mark.parametrize("most", [1, 3, 10, 39, 40, 100, 2000])
@pytest.mark.parametrize(
    "limit",
    ["{}/hour by fixed-window", "1/hour burst {}", "{}/hour by sliding-window", "{}/hour by sliding-window/60"],
    ids=["window", "bucket", "sliding", "slots"],
)
def test_exactly_the_limit_is_admitted(bank, limit, most):
    """Limits of any size are spent to the last token, and a spent one is refused without a question."""
    limiter = bank.limiter(limit.format(most))
    assert drain(limiter) == most
    with bank.asked(0):
        assert drain(limiter) == 0


@EVERY_KIND
def test_several_limiters_share_one_budget_to_the_last_permit(bank, limit):
    """Three limiters with leases and one without admit the limit together."""
    limiters = [bank.limiter(limit) for _ in range(3)] + [bank.plain(limit)]
    admitted = sum(limiter.hit("k").allowed for _ in range(600) for limiter in limiters)
    assert bank.charged(limit) >= admitted == 2400
    assert admitted + sum(map(drain, limiters)) == MOST


def test_near_the_limit_every_permit_is_asked_for(bank):
    """A tenth of what is left would be less than the floor: from there on the answers are the server's."""
    limiter = bank.limiter("39/hour by fixed-window")
    with bank.asked(39):
        assert [limiter.hit("k").remaining for _ in range(39)] == list(range(38, -1, -1))


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5])
def test_a_lease_takes_at_most_its_share_of_what_is_left(bank, share):
    """No purchase is larger than one token and the share of what the server had."""
    limit = "1/hour burst 500"
    limiter = bank.limiter(limit, lease=Lease(share=share, floor=2))
    left = 500
    while limiter.hit("k"):
        now = 500 - bank.charged(limit)
        assert left - now <= 1 + left * share
        left = now


@pytest.mark.parametrize("hits", [1, 2])
def test_a_cold_key_costs_what_it_costs_without_leases(bank, hits):
    """Question for question, command for command; and no further heartbeat, as long as nothing is bought."""

    def commands(limiter, namespace: str) -> dict[str, int]:
        names = ("eval", "evalsha", "get", "set", "time", "zadd")
        bank.server.command("CONFIG", "RESETSTAT")
        for number in range(100):
            for _ in range(hits):
                limiter.hit(f"{namespace}{number}")
        stats = bank.server.info("commandstats")
        return {name: stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in names}

    bank.limiter(lease=False).hit("before")
    leased = bank.limiter()
    for _ in range(2):  # two heartbeats, by which the process knows that it is alone
        leased.hit("before")
        bank.clock.advance(1)
    without = commands(bank.limiter(lease=False), "a")
    assert without == {"eval": 0, "evalsha": 100 * hits, "get": 100 * hits, "set": 100 * hits, "time": 0, "zadd": 0}
    assert commands(leased, "b") == without


def test_a_key_asked_for_rarely_stays_exact_for_ever(bank):
    """Hits 0.4 s apart are asked one by one."""
    limiter = bank.limiter()
    for _ in range(20):
        bank.clock.advance(0.4)
        with bank.asked(1):
            limiter.hit("k")


def test_a_key_that_was_hot_is_exact_again_after_one_lease_too_many(bank):
    """After a pause one lease is bought in vain, and then each hit is charged alone."""
    limiter = bank.limiter(WINDOW)
    warm(limiter, hits=500)
    bank.clock.advance(60)
    limiter.hit("k")
    bank.clock.advance(1.5)
    limiter.close()
    for hits in range(1, 6):
        bank.clock.advance(1.5)
        with bank.asked(1):
            limiter.hit("k")
        assert bank.charged(WINDOW) == 501 + hits


def test_a_key_that_was_hot_is_leased_no_more_than_it_uses(bank):
    """Three times a second is too rare for a lease, however hot it was before."""
    limiter = bank.limiter(WINDOW)
    admitted = warm(limiter)
    for _ in range(20):
        bank.clock.advance(0.33)
        admitted += limiter.hit("k").allowed
    limiter.close()
    for _ in range(20):
        bank.clock.advance(0.33)
        with bank.asked(1):
            admitted += limiter.hit("k").allowed
    assert bank.charged(WINDOW) == admitted == 90


def test_a_refused_key_is_refused_here_until_its_retry(bank):
    """A hundred refusals cost no question and tell the same wait; after it the key is admitted."""
    limiter = bank.limiter("1000/hour by fixed-window")
    drain(limiter)
    with bank.asked(0):
        refusals = [limiter.hit("k") for _ in range(100)]
    assert {(each.allowed, each.degraded, each.retry_after) for each in refusals} == {(False, False, 800.0)}
    bank.clock.advance(800)
    assert limiter.hit("k").remaining == 999


def test_a_purchase_that_is_refused_answers_for_all_that_follow(bank):
    """One question answers 51 hits of a key that others have used up."""
    limiter = bank.limiter(WINDOW)
    warm(limiter)
    limiter.close()
    drain(bank.plain(WINDOW))
    bank.clock.advance(0.001)
    with bank.asked(1):
        assert [limiter.hit("k", cost).allowed for cost in [1] * 50 + [2]] == [False] * 51


@EVERY_KIND
def test_permits_are_spent_to_the_last_microsecond_of_their_validity_and_not_at_it(bank, limit):
    """A lease of two seconds is good for 1.999999 s, and is bought anew after that."""
    limiter = bank.limiter(limit, lease=Lease(validity=2))
    assert warm(limiter) == 50
    bank.clock.us += 1_999_999
    with bank.asked(0):
        assert limiter.hit("k").allowed
    bank.clock.us += 1
    before = bank.trips()
    assert limiter.hit("k").allowed
    assert bank.trips() > before


def test_what_has_run_out_is_given_back_once_counted_from_the_grant(bank):
    """`1/second`: two seconds later the server regained two units by itself. What is given back leaves these out, so
    exactly what was admitted counts against the key then, as if the rest had never been bought."""
    limit = "1/second burst 10000"
    limiter = bank.limiter(limit)
    admitted = warm(limiter, hits=200)
    bank.clock.advance(2)
    limiter.close()
    assert bank.charged(limit) == admitted
    limiter.close()
    bank.clock.advance(1)
    assert bank.charged(limit) == admitted - 1


@pytest.mark.parametrize("limit", ["1000/second burst 10000", "10000/10 seconds by fixed-window"])
def test_what_a_limit_regained_by_itself_is_not_worth_a_message(bank, limit):
    """A lease of a limit that is full again is not given back."""
    limiter = bank.limiter(limit)  # in the first microsecond of the window
    assert warm(limiter, hits=200) < bank.charged(limit)
    bank.clock.advance(10)
    with bank.asked(0):
        limiter.close()


@pytest.mark.parametrize("wait", [0, 0.999, 1.5], ids=["at once", "just before it ends", "after its end"])
@pytest.mark.parametrize("hits", [24, 25, 50, 106])
def test_what_was_bought_ahead_for_a_key_that_went_quiet_comes_back(bank, hits, wait):
    """The lease in use is low after these hits, and the next one is bought."""
    limiter = bank.limiter(WINDOW)
    warm(limiter, hits=hits)
    bank.clock.advance(wait)
    limiter.hit("other")
    limiter.close()
    assert bank.charged(WINDOW) == hits


def test_permits_of_a_window_die_with_it(bank):
    """The next window starts from its own tokens: exactly its limit is admitted, and charged in it."""
    limiter = bank.limiter(WINDOW, lease=Lease(validity=3600))
    bank.clock.set(START + 799.999)
    warm(limiter, hits=500)
    bank.clock.us += 999
    with bank.asked(0):
        assert limiter.hit("k")
    bank.clock.us += 1
    assert bank.charged(WINDOW) == 0
    assert limiter.hit("k").remaining == MOST - 1
    assert drain(limiter) == MOST - 1


def test_a_bucket_that_fills_while_permits_are_held_admits_what_the_bound_says(bank):
    """In any time t: burst + rate * (t + validity). Four nodes, hit until refused, every tenth of a second."""
    limiters = [bank.limiter("100/second burst 500", lease=Lease(validity=1)) for _ in range(4)]
    admitted = []
    for _ in range(40):
        admitted.append(sum(map(drain, limiters)))
        bank.clock.advance(0.1)
    for start in range(40):
        for end in range(start, 40):
            assert sum(admitted[start : end + 1]) <= 500 + 100 * ((end - start) / 10 + 1)
    assert sum(admitted) >= 0.95 * (500 + 100 * 3.9)
