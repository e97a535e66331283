"""Leases and costs other than one."""

from __future__ import annotations

import pytest

from headgate import Call, InvalidCall, Limit
from tests.support.leasing import EVERY_KIND, MOST, WINDOW, drain, warm


@EVERY_KIND
def test_costs_are_charged_unit_for_unit(bank, limit):
    """Hits of any cost leave the server charged with their sum."""
    limiter = bank.limiter(limit)
    spent = 0
    for cost in [3, 1, 7, 2, 40, 1, 1, 60, 5] * 10:
        spent += cost * limiter.hit("k", cost).allowed
    assert spent == 1200
    limiter.close()
    assert bank.charged(limit) == 1200


@pytest.mark.parametrize("cost", [2, 3, 7, 300])
def test_costs_are_admitted_to_the_last_that_fits(bank, cost):
    """At once all but one: what is left of a lease, less than the cost, may be what is missing. It comes back."""
    limiter = bank.limiter(WINDOW)
    admitted = drain(limiter, cost=cost)
    assert MOST // cost - 1 <= admitted <= MOST // cost
    bank.clock.advance(1)
    limiter.close()
    assert admitted + drain(limiter, cost=cost) == MOST // cost
    assert bank.charged(WINDOW) == MOST // cost * cost


def test_a_cost_that_does_not_fit_takes_nothing(bank):
    """Neither one that never will nor one that is too much for now: what is left stays there for the others."""
    limiter = bank.limiter(WINDOW)
    warm(limiter)
    held = bank.charged(WINDOW)
    assert limiter.hit("k", MOST + 1).never
    assert not limiter.hit("k", MOST - 1).allowed
    assert bank.charged(WINDOW) <= held
    assert bank.plain(WINDOW).hit("k", MOST - held).allowed


def test_a_cost_of_nothing_is_always_allowed_and_spends_nothing(bank):
    """Hits of cost 0 pass on a leased key and on a spent one."""
    limiter = bank.limiter(WINDOW)
    admitted = warm(limiter)
    assert all(limiter.hit("k", 0).allowed for _ in range(10))
    assert admitted + drain(limiter) == MOST
    assert limiter.hit("k", 0).allowed


def test_what_is_not_one_number_of_one_key_is_asked_for_exactly(bank):
    """Partial grants, several subjects and plans go to the server, beside a lease."""
    limiter = bank.limiter(WINDOW)
    spent = warm(limiter)
    own = Limit.parse(WINDOW)
    assert limiter.take_up_to("k", 30).granted == 30
    assert limiter.decide(Call(own, "k", 20), Call(own, "other", 5)).allowed
    assert limiter.hit("k", 10, limit=Limit(6000, "1h", algorithm="fixed-window")).limit == 6000
    assert not limiter.hit("k", 10, limit=Limit(60, "1h", algorithm="fixed-window")).allowed
    spent += 60 + warm(limiter)
    limiter.close()
    assert (bank.charged(WINDOW), bank.charged(WINDOW, "other")) == (spent, 5)


BAD = [
    (["k"], 1), ({}, 1), (b"k", 1), ("", 1), (7, 1), (None, 1), ("x" * 5000, 1),
    ("k", True), ("k", 1.0), ("k", -1), ("k", "1"), ("k", 2**53 + 1), ("k", 2**70), ("k", None),
]  # fmt: skip


@pytest.mark.parametrize("verb", ["hit", "peek", "take_up_to", "reserve", "acquire"])
def test_what_is_no_question_is_refused_as_without_leases(bank, verb):
    """A bad key or cost is an `InvalidCall` for every verb, and nothing is spent."""
    limiter = bank.limiter()
    warm(limiter)
    for key, cost in BAD[2:] if verb == "acquire" else BAD:  # which looks for a line first, leases or not
        with pytest.raises(InvalidCall):
            getattr(limiter, verb)(key, cost)
    limiter.close()
    assert bank.charged() == 50
    with pytest.raises(InvalidCall):
        limiter.refund(42)
