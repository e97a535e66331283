"""A key that changes plan: what was written by one plan's numbers is read by another's."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headgate import Limit, Limiter
from headgate.testing import ManualClock
from headgate.testing.suite import EVERY_ALGORITHM

PART = Fraction(1, 8192)
"""Of a microsecond: how far a change of plan may move a bucket towards the caller."""

amounts = st.one_of(st.integers(1, 50), st.integers(8180, 8200), st.sampled_from([1000, 4999, 999_983, 1_000_000]))
plans = st.lists(st.tuples(amounts, st.integers(1, 60)), min_size=1, max_size=4)
acts = st.lists(
    st.tuples(
        st.integers(0, 3), st.integers(1, 12), st.sampled_from(["now", "wait", "retry", "early"]), st.integers(0, 10**6)
    ),
    max_size=60,
)


def buckets(plans: list[tuple[int, int]], period: str = "second") -> list[Limit]:
    return [Limit(amount, period, burst=burst) for amount, burst in plans]


def interval(limit: Limit) -> Fraction:
    """Microseconds a unit, as the bucket keeps them."""
    return Fraction(limit.params[2], limit.params[1])


@settings(max_examples=200)
@given(plans=plans, acts=acts)
@example(plans=[(8191, 40), (1000, 40)], acts=[(n % 2, 1, "now", 0) for n in range(40)])
@example(plans=[(2, 9), (8191, 9)], acts=[(n % 2, 1, "retry", 0) for n in range(60)])
def test_a_change_of_plan_moves_a_bucket_by_less_than_a_microsecond(plans, acts):
    """Against exact fractions: with each change less than 1/8192 us towards the caller, less than 1 us away from it.

    While the plan stays the same nothing moves at all.
    """
    limits = buckets(plans)
    clock = ManualClock(1000)
    limiter = Limiter(limits[0], clock=clock)
    earliest = latest = Fraction(0)
    writer = None
    retry = 0
    for which, cost, aim, gap in acts:
        limit = limits[which % len(limits)]
        clock.us += {"now": 0, "wait": gap, "retry": max(0, retry), "early": max(0, retry - 1)}[aim]
        decision = limiter.hit("k", min(cost, limit.burst), limit=limit)
        retry = decision.retry_us
        if decision:
            if writer not in (None, limit):
                earliest, latest = earliest - PART, latest + Fraction(1, limit.params[1])
            earliest, latest = (
                max(instant, Fraction(clock.us)) + decision.granted * interval(limit) for instant in (earliest, latest)
            )
            writer = limit
            assert ceil(earliest) <= clock.us + decision.reset_us <= ceil(latest)


@pytest.mark.parametrize("period", ["second", "day", "4 weeks"])
@settings(max_examples=100)
@given(plans=plans, acts=acts)
@example(plans=[(10, 10), (600, 10)], acts=[(n % 2, 10, "now", 0) for n in range(20)])
@example(plans=[(1000, 60), (8190, 1)], acts=[(n % 2, 12, "now", 0) for n in range(60)])
def test_no_mixture_of_plans_admits_more_than_a_plan_allows(period, plans, acts):
    """Of each plan's own admissions, in any interval, at most burst + rate * t; but for 1/8192 us a change of plan.

    Though over a day one plan's burst may be owed for hours more than another's explains.
    """
    limits = buckets([(amount, min(amount, burst)) for amount, burst in plans], period)
    clock = ManualClock(1000)
    limiter = Limiter(limits[0], clock=clock)
    admitted: list[tuple[int, Limit, int]] = []
    retry = 0
    for which, cost, aim, gap in acts:
        limit = limits[which % len(limits)]
        clock.us += {"now": 0, "wait": gap, "retry": max(0, retry), "early": max(0, retry - 1)}[aim]
        decision = limiter.take_up_to("k", cost, limit=limit)
        retry = decision.retry_us
        if decision:
            admitted.append((clock.us, limit, decision.granted))
    for first, (start, limit, _) in enumerate(admitted):
        units = 0
        for changes, (at, by, granted) in enumerate(admitted[first:]):
            if by == limit:
                units += granted
                assert units * interval(limit) <= limit.burst * interval(limit) + at - start + changes * PART


def test_time_owed_stays_owed():
    """A bucket keeps when it is full: what a slow plan owes beyond a quick plan's whole burst is waited for."""
    clock = ManualClock(1000)
    limiter = Limiter("10/minute burst 10", clock=clock)
    quick = "600/minute burst 10"
    limiter.hit("k", 10)
    assert limiter.peek("k").retry_after == 6.0
    assert limiter.peek("k", limit=quick).retry_after == 59.1  # 60 s are owed, and a whole burst of this plan is 1 s
    assert limiter.peek("k", limit="600/minute").retry_after == 0.1  # a burst in proportion: just used up here too
    clock.advance(59.1)
    assert limiter.hit("k", limit=quick)
    limiter.reset("k")
    assert limiter.hit("k", 10, limit=quick)


def test_a_quick_plan_does_not_free_a_slow_one():
    """However often another plan asks in between, a plan that is used up stays used up until its own wait is over."""
    clock = ManualClock(1000)
    limiter = Limiter("10/minute burst 10", clock=clock)
    limiter.hit("k", 10)
    for _ in range(100):
        limiter.hit("k", limit="600/minute burst 10")
        assert not limiter.hit("k")
    clock.us += 5_999_999
    assert not limiter.hit("k")
    clock.us += 1
    assert limiter.hit("k")


@settings(max_examples=60)
@given(plans=plans, acts=acts)
def test_full_is_full_for_every_plan(plans, acts):
    """At its reset a key has its whole burst under every plan: a store may forget it without knowing its plan."""
    limits = buckets(plans)
    clock = ManualClock(1000)
    limiter = Limiter(limits[0], clock=clock)
    for which, cost, _, gap in acts:
        limit = limits[which % len(limits)]
        clock.us += gap % 1000
        limiter.take_up_to("k", cost, limit=limit)
    clock.us += limiter.peek("k", 0).reset_us
    for limit in limits:
        seen = limiter.peek("k", 0, limit=limit)
        assert (seen.remaining, seen.reset_us) == (limit.burst, 0)


@pytest.mark.parametrize("algorithm", EVERY_ALGORITHM)
@settings(max_examples=25)
@given(acts=acts)
def test_a_retry_holds_whatever_plan_charged_before(algorithm, acts):
    """Refused one microsecond before it, admitted at it, though other plans tick otherwise or have other fractions."""
    limits = [Limit(amount, "day", algorithm=algorithm) for amount in (1000, 11, 13)]
    if "log" not in algorithm:
        limits[0] = Limit(900_000_001, "day", algorithm=algorithm)
    clock = ManualClock(86_400 * 10_000)
    limiter = Limiter(limits[0], clock=clock)
    for which, cost, aim, gap in acts:
        clock.us += {"now": 0, "wait": gap * 7919, "retry": 12_342_857_143, "early": 12_342_857_142}[aim]
        limit = limits[which % 3]
        told = limiter.hit("k", min(cost * (limit.burst // 11), limit.burst), limit=limit)
        if told.retry_us > 0:
            start, cost = clock.us, told.calls[0].cost
            clock.us = start + told.retry_us - 1
            assert not limiter.peek("k", cost, limit=limit)
            clock.us += 1
            assert limiter.peek("k", cost, limit=limit)
            clock.us = start
