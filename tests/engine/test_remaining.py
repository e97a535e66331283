"""What is left over several limits: a number that can be spent."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headgate import Limit, Limiter
from headgate.decision import tightest
from headgate.testing import ManualClock

LIMITS = (
    "10/second; 100/hour",
    "100/hour; 10/second",
    "7/second burst 3; 40/minute by sliding-window/6; 90/day by fixed-window",
    "20/minute by sliding-log; 5/second; 12 in flight",
)


@pytest.mark.parametrize("text", LIMITS)
@settings(max_examples=40)
@given(spent=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 3_000_000)), max_size=15))
@example(spent=[(0, 0)])
def test_what_remains_can_be_taken(text, spent):
    """After any answer, `take_up_to` grants exactly `remaining`, yes or no, and then nothing remains."""
    clock = ManualClock(1_000_000)
    limiter = Limiter(text, clock=clock)
    for cost, wait in spent:
        decision = limiter.hit("k", cost)
        assert decision.remaining == min(verdict.remaining for verdict in decision.verdicts)
        assert limiter.peek("k", 0).remaining == decision.remaining
        clock.us += wait
    left = limiter.peek("k", 0).remaining
    taken = limiter.take_up_to("k", 1_000)
    assert (taken.granted, taken.remaining) == (left, 0)


@settings(max_examples=60)
@given(
    cost=st.tuples(st.integers(0, 3), st.integers(0, 900)),
    spent=st.tuples(st.integers(0, 60), st.integers(0, 9_000)),
)
@example(cost=(1, 500), spent=(54, 6_000))
@example(cost=(0, 0), spent=(0, 0))
def test_with_costs_by_name_it_is_of_the_limit_that_fits_the_fewest_more(cost, spent):
    """Exactly `remaining` divided by the cost of its limit further calls pass, and not one more."""
    limiter = Limiter("60/minute as rpm; 9000/minute as tpm", clock=ManualClock(1_000_000))
    costs = dict(zip(("rpm", "tpm"), cost, strict=True))
    limiter.hit("k", dict(zip(("rpm", "tpm"), spent, strict=True)))
    decision = limiter.peek("k", {"rpm": 0, "tpm": 0} if cost == (0, 0) else costs)
    left = [verdict.remaining for verdict in decision.verdicts]
    place = tightest(decision.costs, left)
    assert decision.remaining == left[place]
    if decision and cost[place]:
        passed = 1
        while passed < 1_000 and limiter.hit("k", costs):
            passed += 1
        assert passed == min(1_000, decision.remaining // cost[place] + 1)


def test_the_binding_limit_of_a_yes_has_the_least_left():
    """The first of them, where several have; `limit` is its burst."""
    limiter = Limiter("10/second; 100/hour", clock=ManualClock(1_000_000))
    decision = limiter.hit("k")
    assert (decision.remaining, decision.limit, decision.binding) == (9, 10, Limit(10, "second"))
    even = Limiter("10/second as a; 10/minute as b", clock=ManualClock(1_000_000)).hit("k")
    assert (even.remaining, even.binding.name) == (9, "a")


def test_the_binding_limit_of_a_no_has_the_longest_wait():
    """The remaining units may be those of another limit: the least of all is the number that could still be spent."""
    limiter = Limiter("4/second as fast; 6/hour as slow", clock=ManualClock(1_000_000))
    limiter.hit("k", 3)
    refused = limiter.hit("k", 4)
    assert [verdict.remaining for verdict in refused.verdicts] == [1, 3]
    assert (refused.binding.name, refused.limit, refused.remaining) == ("slow", 6, 1)
