"""Decisions and refusals that are copied or pickled."""

from __future__ import annotations

import copy
import pickle

import pytest

from headgate import (
    Decision,
    Limiter,
    RateLimited,
)
from headgate.testing import ManualClock
from tests.limiter.test_limiter import limiter
from tests.support.stores import away


def pickle_round(decision: Decision) -> Decision:
    travelled: Decision = pickle.loads(pickle.dumps(decision))
    return travelled


def test_decisions_and_refusals_travel():
    """A decision is pickled and copied whole; RateLimited crosses process borders with it."""
    limit = limiter("60/minute as rpm; 90000/minute as tpm")
    for decision in (limit.hit("k", {"rpm": 60, "tpm": 5}), limit.hit("k"), limiter().hit("k", 3)):
        for travelled in (pickle.loads(pickle.dumps(decision)), copy.copy(decision)):
            assert travelled.verdicts == decision.verdicts
            assert travelled.calls == decision.calls
            assert (travelled.retry_after, travelled.binding) == (decision.retry_after, decision.binding)
    refusal = pickle.loads(pickle.dumps(RateLimited(limit.hit("k"))))
    assert refusal.retry_after == limit.peek("k").retry_after


def test_an_answer_without_the_store_travels_as_such():
    """A decision says so after a journey, too: a process that reads it must not take it for the store's."""
    degraded = Limiter("10/minute", store=away(clock=ManualClock(1000))).hit("k")
    assert (degraded.degraded, pickle_round(degraded).degraded) == (True, True)
    assert not pickle_round(limiter().hit("k")).degraded


@pytest.mark.parametrize("text", ["10/minute", "10/minute by fixed-window", "10/minute as rpm; 9/minute as tpm"])
@pytest.mark.parametrize(
    "duplicate",
    [copy.copy, copy.deepcopy, lambda decision: copy.deepcopy([decision])[0], pickle_round],
    ids=["copy", "deepcopy", "deepcopy of a list", "pickle"],
)
def test_no_copy_of_a_decision_gives_back_again(text, duplicate):
    """The charge of a decision is given back once, however many copies of the decision there are."""
    limit = Limiter(text, clock=ManualClock(1000))
    limit.hit("k", 4)
    spent = limit.hit("k", 3)
    again = [duplicate(spent), duplicate(spent)]
    limit.refund(spent, 1)
    for each in (spent, *again, duplicate(spent), duplicate(again[0])):
        limit.refund(each)
    assert [verdict.remaining for verdict in limit.peek("k", 0).verdicts] == [each.burst - 4 for each in limit.limits]


def test_a_decision_that_was_pickled_gives_nothing_back():
    """An unpickled decision is an answer, not a charge: the charge stays with the decision that was made."""
    limit = Limiter("10/minute", clock=ManualClock(1000))
    limit.refund(pickle_round(limit.hit("k", 3)))
    assert limit.peek("k", 0).remaining == 7
    flying = Limiter("2 in flight", clock=ManualClock(1000))
    held = flying.hit("k")
    flying.release(pickle_round(held))
    assert flying.peek("k", 0).remaining == 1
    flying.release(copy.copy(held))
    assert flying.peek("k", 0).remaining == 2
