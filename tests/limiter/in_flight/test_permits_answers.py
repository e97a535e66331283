"""What is in flight beside everything else a limiter has: rates, plans, resets, names, decorators and holders."""

from __future__ import annotations

import asyncio
import inspect
import math
import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from headgate import AsyncLimiter, Call, InvalidCall, InvalidLimit, Limit, Limiter, RateLimited
from headgate.algorithms.contract import UNKNOWN
from headgate.stores.redis import RedisStore
from headgate.testing import disabled, frozen, reset_all
from tests.support.flight import LONG, Awaited, beside, held, left, one, renewed
from tests.support.homes import EVERY_WAY

BOTH = "5/hour as rate; 2 in flight as now"


def test_both_kinds_are_charged_or_none(make):
    """Whichever refuses, the other is as before; release ends what is in flight, refund gives back all of it."""
    limiter = make(BOTH)
    first, second = limiter.permit("k"), limiter.permit("k")
    assert left(limiter) == [3, 0]
    refused = limiter.permit("k")
    assert not refused and refused.decision.binding.name == "now"
    assert (left(limiter), refused.decision.unknown) == ([3, 0], True)
    assert first.release() and second.release()
    assert left(limiter) == [3, 2]
    drained = limiter.hit("k", {"rate": 3, "now": 0})
    refused = limiter.permit("k")
    assert not refused and refused.decision.binding.name == "rate"
    assert (left(limiter), refused.decision.unknown) == ([0, 2], False)
    assert refused.decision.retry_after == 720.0
    limiter.refund(drained)
    mixed = limiter.hit("k", 2)
    assert left(limiter) == [1, 0]
    limiter.release(mixed)
    assert left(limiter) == [1, 2]
    limiter.refund(mixed)
    assert left(limiter) == [3, 2]


def test_of_two_refusals_the_one_that_nobody_can_time_binds(make):
    """A caller that comes back at the rate's instant may still be refused: the time is unknown. Never precedes both."""
    limiter = make("2/hour as rate; 2 in flight as now")
    limiter.permit("k", 2)
    refused = limiter.peek("k")
    assert (refused.unknown, refused.binding.name) == (True, "now")
    assert [math.isinf(refused.retry_after), math.isinf(refused.reset_after)] == [True, True]
    assert [verdict.retry_us > 0 for verdict in refused.verdicts] == [True, False]
    for limits in ("2/hour as rate; 2 in flight as now", "2 in flight as now; 2/hour as rate"):
        limiter = make(limits)
        limiter.permit(limits, 2)
        assert limiter.peek(limits, {"rate": 3, "now": 1}).never


def test_several_subjects_are_held_or_none(make):
    """`decide` over a rate of one and the flights of another: all or nothing, and released together."""
    limiter = make("1/second")
    rate, user, org = Limit.parse("5/hour as r"), Limit.parse("2 in flight as u"), Limit.parse("3 in flight as org")

    def ask(cost: int, rated: int = 1) -> Any:
        return limiter.decide(Call(rate, "u1", rated), Call(user, "u1"), Call(org, "o1", cost))

    def free() -> list[int]:
        seen = limiter.decide(Call(rate, "u1", 0), Call(user, "u1", 0), Call(org, "o1", 0))
        return [verdict.remaining for verdict in seen.verdicts]

    taken = ask(2)
    assert (taken.allowed, free()) == (True, [4, 1, 1])
    for refused, name in ((ask(2), "org"), (ask(1, rated=5), "r")):
        assert (refused.allowed, refused.binding.name, free()) == (False, name, [4, 1, 1])
    limiter.release(taken)
    assert free() == [4, 2, 3]
    limiter.refund(taken)
    assert free() == [5, 2, 3]


def test_peek_answers_as_a_permit_would_and_takes_none(make):
    """The remaining permits are those that are free now, since a peek takes none."""
    limiter = make("3 in flight")
    limiter.permit("k", 2)
    seen = {tuple(verdict[:4] for verdict in limiter.peek("k").verdicts) for _ in range(5)}
    assert seen == {((True, 1, 0, UNKNOWN),)}
    assert limiter.permit("k").decision.remaining == 0
    assert not limiter.peek("k") and limiter.peek("k", 0)
    assert len(limiter.holders("k")) == 2


def test_a_reset_frees_everything_and_what_ends_after_it_frees_nothing(make, clock):
    """A permit from before a reset is nobody's later one, be it of the same units, and taken a microsecond later."""
    limiter = make("2 in flight", clock=clock)
    before = [limiter.permit("k"), limiter.permit("k")]
    other = limiter.permit("other", 2)
    limiter.reset("k")
    assert (held(limiter), limiter.holders("k"), held(limiter, "other")) == (0, [], 2)
    assert "k" not in renewed(limiter)
    clock.advance(0.000001)
    after = limiter.permit("k"), limiter.permit("k")
    assert all(permit.release() for permit in before)
    assert held(limiter) == 2
    assert all(permit.release() for permit in (*after, other))
    assert (held(limiter), held(limiter, "other")) == (0, 0)


def test_a_reset_is_for_the_limits_of_its_limiter(make):
    """Permits that another limiter has in flight for the same key stay, and end as they should."""
    one = make("2 in flight as one")
    other = beside(one, "2 in flight as other")
    kept = other.permit("k")
    one.reset("k")
    assert held(other) == 1
    kept.release()
    assert held(other) == 0


def test_a_cleared_namespace_holds_nothing(make, clock):
    """After `clear` the namespace is free; permits from before end without freeing later ones, and others stay held."""
    limiter = make("2 in flight", clock=clock)
    elsewhere = beside(limiter, "2 in flight", namespace="elsewhere")
    before, kept = limiter.permit("k"), elsewhere.permit("there")
    limiter.store.clear(limiter.namespace)
    assert "k" not in renewed(limiter)
    clock.advance(0.000001)
    limiter.permit("k")
    before.release()
    assert (held(limiter), held(elsewhere, "there")) == (1, 1)
    kept.release()
    assert held(elsewhere, "there") == 0


def test_as_much_as_fits_is_held(make):
    """`take_up_to` holds as many units as are free, beside a rate too, and gives back as many."""
    limiter = make("5 in flight")
    first, second = limiter.take_up_to("k", 3), limiter.take_up_to("k", 3)
    assert [first.granted, second.granted, limiter.take_up_to("k", 3).granted] == [3, 2, 0]
    limiter.release(second)
    assert (held(limiter), [holding.units for holding in limiter.holders("k")]) == (3, [3])
    both = beside(limiter, BOTH)
    part = both.take_up_to("k", 4)
    assert (part.granted, left(both)) == (2, [3, 0])
    both.release(part)
    assert left(both) == [3, 2]


def test_a_plan_counts_the_same_permits_by_other_numbers(make):
    """A plan may also have another lease: the length of a lease does not change which permits are counted."""
    limiter = make("10 in flight")
    small = limiter.hit("k", 3, limit="3 in flight ttl 5s")
    assert small and not limiter.hit("k", limit="3 in flight")
    assert limiter.hit("k", 7) and not limiter.hit("k")
    limiter.release(small)
    assert held(limiter) == 7
    assert limiter.peek("k", 0, limit="3 in flight").remaining == 0
    for other in ("3 in flight as other", "3/minute", "3 in flight; 3/minute"):
        with pytest.raises(InvalidLimit, match="changes numbers only"):
            limiter.hit("k", limit=other)


def test_costs_by_name_are_held_by_name(make):
    """Each limit holds the units that name it, and holders are listed by limit."""
    limiter = make("10/hour as rate; 5 in flight as now; 4 in flight as wide")
    with limiter.permit("k", {"rate": 1, "now": 2, "wide": 4}):
        assert left(limiter) == [9, 3, 0]
        assert [(each.limit.name, each.units) for each in limiter.holders("k")] == [("now", 2), ("wide", 4)]
        assert not limiter.permit("k", {"rate": 1, "now": 1, "wide": 1})
    assert left(limiter) == [9, 5, 4]


def test_holders_are_listed_the_oldest_first(make, clock):
    """Holders have their ages, their units and their process; permits that have ended are not listed."""
    limiter = make(f"9 in flight ttl {LONG}; 100/hour", clock=clock)
    permits = []
    for units in (2, 1, 3, 1):
        permits.append(limiter.permit("k", units))
        clock.advance(1.5)
    permits[1].release()
    again = limiter.permit("k")
    listed = limiter.holders("k")
    assert [(each.age, each.units, each.own) for each in listed] == [
        (6.0, 2, True), (3.0, 3, True), (1.5, 1, True), (0.0, 1, True),
    ]  # fmt: skip
    assert {each.limit for each in listed} == {limiter.limits[0]}
    assert limiter.holders("other") == []
    for permit in (*permits, again):
        permit.release()
    assert limiter.holders("k") == []


@pytest.mark.parametrize("make", [way for way in EVERY_WAY if "memory" not in way], indirect=True)
def test_holders_are_told_apart_by_who_holds_them(make, clock):
    """Those of another store, as another process has, are listed and not own, be they of the same instant."""
    mine, others = make("9 in flight", clock=clock), make("9 in flight", clock=clock)
    one, two = mine.permit("k", 1), others.permit("k", 2)
    for limiter, own in ((mine, 1), (others, 2)):
        assert sorted((each.units, each.own) for each in limiter.holders("k")) == [(1, own == 1), (2, own == 2)]
    one.release()
    assert [(each.units, each.own) for each in mine.holders("k")] == [(2, False)]
    two.release()
    assert mine.holders("k") == []


def test_namespaces_and_names_are_apart_and_numbers_are_not(make):
    """The state is filed under the name: another limit, or another lease, counts what is there."""
    limiter = make("3 in flight")
    permit = limiter.permit("k", 2)
    assert held(beside(limiter, "3 in flight", namespace="other")) == 0
    assert held(beside(limiter, "3 in flight as other")) == 0
    assert left(beside(limiter, "2 in flight ttl 5s")) == [0]
    permit.release()
    assert left(beside(limiter, "2 in flight ttl 5s")) == [2]


def test_a_limited_function_is_in_flight_while_it_runs(make):
    """A permit also ends when the function fails; a refusal raises before the function begins."""
    limiter = make(BOTH)
    seen: list[list[int]] = []

    def work(user: str) -> str:
        if user == "bad":
            raise ConnectionError
        return user.upper()

    async def awaited_work(user: str) -> str:
        await asyncio.sleep(0)
        return work(user)

    limited = limiter.limited(lambda user: "k")(awaited_work if isinstance(limiter, Awaited) else work)
    assert limited("ann") == "ANN"
    seen.append(left(limiter))
    with pytest.raises(ConnectionError):
        limited("bad")
    seen.append(left(limiter))
    full = limiter.permit("k", {"rate": 0, "now": 2})
    with pytest.raises(RateLimited):
        limited("ann")
    assert [*seen, left(limiter)] == [[4, 2], [3, 2], [3, 0]]
    full.release()


def test_generators_are_not_limited_by_what_is_in_flight():
    """Generators return before they begin; the permit is held while a caller iterates over them."""
    limiter, awaited = Limiter("1 in flight"), AsyncLimiter("1 in flight")

    def generator() -> Iterator[int]:
        yield 1

    async def async_generator() -> Any:
        yield 1

    for limited, function in ((limiter.limited("k"), generator), (awaited.limited("k"), async_generator)):
        with pytest.raises(InvalidCall, match="generator"):
            limited(function)
    assert inspect.isgenerator(Limiter("1/second").limited("k")(generator)())


def test_what_is_in_flight_is_neither_reserved_nor_leased_nor_shaped(make):
    """A reservation is for later, and nobody knows when something ends."""
    for limits in ("1 in flight", BOTH):
        limiter = make(limits)
        for max_wait in (None, 0, 5):
            with pytest.raises(InvalidCall, match=r"cannot be reserved: use limiter.permit\(key\)"):
                limiter.reserve("k", 1, max_wait)
        assert set(left(limiter)) == {limit.amount for limit in limiter.limits}
    with pytest.raises(InvalidLimit, match="1 in flight cannot be leased"):
        Limiter("1 in flight", store=RedisStore("redis://localhost"), lease=True)
    with pytest.raises(InvalidCall, match="lease needs a store on a server"):
        Limiter("1 in flight", lease=True)


def test_bad_questions_hold_nothing(make):
    """A key, a cost or a timeout of the wrong kind is an `InvalidCall`, and no permit is taken."""
    limiter = make("5 in flight as n")
    for key, cost in (
        ("", 1),
        (5, 1),
        (["k"], 1),
        ("x" * 4097, 1),
        ("k", -1),
        ("k", 1.5),
        ("k", True),
        ("k", {"m": 1}),
    ):
        with pytest.raises(InvalidCall):
            limiter.permit(key, cost)
        with pytest.raises(InvalidCall):
            limiter.permit(key, cost, 5)
    for timeout in (-1, -0.001, math.nan, True, "1", [1]):
        with pytest.raises(InvalidCall, match="number of seconds from 0"):
            limiter.permit("k", timeout=timeout)
    for key in ("", 5, "x" * 4097):
        with pytest.raises(InvalidCall):
            limiter.holders(key)
    assert held(limiter) == 0


def test_what_a_guard_raises_and_a_limit_says_can_be_sent_elsewhere():
    """A limit of what is in flight arrives as the limit that it is."""
    limit = Limit.parse("20 in flight ttl 10s as user")
    assert pickle.loads(pickle.dumps(limit)) == limit == Limit.parse("20 in flight ttl 10s as user")
    assert pickle.loads(pickle.dumps(limit)).in_flight


def test_frozen_limits_hold_by_their_own_clock_and_disabled_ones_nothing():
    """Inside, nothing is in flight yet; outside, everything is as it was."""
    limiter, awaited = Limiter("1 in flight"), AsyncLimiter("1 in flight")
    kept = limiter.permit("k")
    with frozen(limiter, awaited) as clock:
        with limiter.permit("k"):
            clock.advance(5)
            assert [holding.age for holding in limiter.holders("k")] == [5.0]
            assert not asyncio.run(one(awaited.permit("k")))  # frozen together, on one store
        assert held(limiter) == 0
    with disabled(limiter, awaited):
        permits = [limiter.permit("k", 50) for _ in range(5)]
        assert all(permits) and all(permit.release() for permit in permits)
        assert limiter.holders("k") == [] and asyncio.run(one(awaited.permit("k", 2)))
        with limiter.permit("k"), limiter.permit("k", timeout=None):
            limiter.release(limiter.acquire("k"))
    assert not limiter.permit("k")
    assert kept.release() and limiter.permit("k")
    reset_all(limiter)
    assert held(limiter) == 0
