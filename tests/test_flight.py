"""Permits on every home, threaded and awaited: taken, refused, given back, and never more than the limit at once."""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
import pickle
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, nullcontext
from itertools import groupby
from typing import Any

import pytest

from headgate import AsyncLimiter, Call, Concurrency, InvalidCall, InvalidLimit, Limit, Limiter, RateLimited, StoreError
from headgate.algorithms.flight.reference import UNIT_BITS
from headgate.stores import Store
from headgate.stores.redis import RedisStore
from headgate.testing import ManualClock, disabled, frozen, reset_all
from tests.faults import PATIENT, calls
from tests.flight import LONG, Awaited, beside, flying, flying_at, forks, held, in_child, left, renewed
from tests.homes import EVERY_HOME, EVERY_WAY, LATER, Home, home_of, until

Make = Callable[..., Any]
BOTH = "5/hour as rate; 2 in flight as now"


@pytest.fixture(params=EVERY_WAY)
def make(request) -> Iterator[Make]:
    with flying(request.param) as make:
        yield make


@pytest.fixture(params=EVERY_HOME)
def home(request) -> Iterator[Home]:
    with home_of(request.param) as home:
        yield home


def test_the_ledger_of_one_key(make):
    """So many at once, and as soon as one has ended another may begin; who is refused is told that nobody knows."""
    limiter = make("3 in flight")
    ledger = []
    permits: list[Any] = []
    for verb, number in (("take", 1), ("take", 2), ("take", 1), ("end", 0), ("take", 2), ("take", 1), ("end", 1)):
        if verb == "take":
            permits.append(limiter.permit("k", number))
            told = permits[-1].decision
            ledger.append((told.allowed, told.remaining, told.granted, told.unknown))
        else:
            ledger.append((permits[number].release(), held(limiter)))
    assert ledger == [
        (True, 2, 1, False),
        (True, 0, 2, False),
        (False, 0, 0, True),
        (True, 2),
        (False, 1, 0, True),
        (True, 0, 1, False),
        (True, 1),
    ]
    assert limiter.permit("other", 3)


def test_what_can_never_fit_is_refused_for_ever(make):
    """A cost above the limit is another no than one that others have to end for."""
    limiter = make("3 in flight")
    refused = limiter.permit("k", 4)
    told = refused.decision
    assert (bool(refused), told.never, told.unknown, told.retry_after, told.remaining) == (
        False, True, False, math.inf, 3,
    )  # fmt: skip
    with pytest.raises(RateLimited, match="it can never fit"), refused:
        pytest.fail("the body must not run")
    assert held(limiter) == 0


def test_a_cost_of_nothing_is_always_allowed_and_holds_nothing(make):
    limiter = make("2 in flight")
    full = limiter.permit("k", 2)
    nothing = limiter.permit("k", 0)
    assert nothing and nothing.decision.granted == 0
    assert limiter.hit("other", 0) and "other" not in renewed(limiter)
    assert nothing.release() and held(limiter) == 2
    assert [holding.units for holding in limiter.holders("k")] == [2]
    assert full.release() and held(limiter) == 0


@pytest.mark.parametrize("outcome", ["success", "ignored", "dropped"])
def test_a_permit_ends_once_in_one_of_three_ways(make, outcome):
    """How is kept; ending it again changes nothing and frees nobody else's."""
    limiter = make("1 in flight")
    permit = limiter.permit("k")
    assert permit.outcome is None
    assert permit.release(outcome)
    later = limiter.permit("k")
    assert later
    assert [permit.release(again) for again in ("success", "ignored", "dropped")] == [False] * 3
    assert (permit.outcome, held(limiter)) == (outcome, 1)


def test_any_other_ending_is_an_error_and_the_permit_stays_held(make):
    limiter = make("1 in flight")
    permit = limiter.permit("k")
    for wrong in ("", "ok", "SUCCESS", None, 1):
        with pytest.raises(InvalidCall, match="one of success, ignored, dropped"):
            permit.release(wrong)
    assert (permit.outcome, held(limiter)) == (None, 1)


def test_a_refused_permit_has_nothing_to_end(make):
    limiter = make("1 in flight")
    limiter.permit("k")
    refused = limiter.permit("k")
    assert (refused.release(), refused.outcome, held(limiter)) == (False, None, 1)


def test_leaving_the_block_ends_it(make):
    """As a success; as ignored where an exception leaves it, which goes on; as it was ended inside, where it was."""
    limiter = make("1 in flight")
    with limiter.permit("k") as permit:
        assert (bool(permit), held(limiter)) == (True, 1)
    assert (permit.outcome, held(limiter)) == ("success", 0)
    with pytest.raises(ConnectionError), limiter.permit("k") as permit:
        raise ConnectionError
    assert (permit.outcome, held(limiter)) == ("ignored", 0)
    with limiter.permit("k") as permit:
        permit.release("dropped")
        assert limiter.permit("k")
    assert (permit.outcome, held(limiter)) == ("dropped", 1)


def test_a_block_that_is_refused_raises_and_does_not_run(make):
    limiter = make("1 in flight as api")
    limiter.permit("k")
    with pytest.raises(RateLimited) as error, limiter.permit("k"):
        pytest.fail("the body must not run")
    assert str(error.value) == "rate limited by 1 in flight as api: others have to end first"
    assert error.value.decision.unknown and math.isnan(error.value.retry_after)


def test_a_permit_that_has_ended_is_not_entered_again(make):
    """It holds nothing any more: a block would run unlimited."""
    limiter = make("1 in flight")
    with limiter.permit("k") as permit:
        pass
    limiter.permit("k")
    with pytest.raises(InvalidCall, match="has ended"), permit:
        pytest.fail("the body must not run")
    assert held(limiter) == 1


def test_permits_say_what_became_of_them():
    limiter = Limiter("1 in flight", clock=ManualClock())
    permit, refused = limiter.permit("k"), limiter.permit("k")
    assert repr(permit) == "<Permit held, <Decision allowed, 0 of 1 left, by 1 in flight>>"
    assert repr(refused) == "<Permit refused, <Decision refused until others have ended, by 1 in flight>>"
    permit.release("dropped")
    assert repr(permit).startswith("<Permit dropped, ")


def test_of_what_is_in_flight_nobody_knows_the_future(make):
    """retry_after and reset_after are no numbers where they depend on others; spread for a crowd neither."""
    limiter = make("2 in flight")
    fresh = limiter.peek("k", 0)
    assert (fresh.retry_after, fresh.reset_after, fresh.unknown) == (0.0, 0.0, False)
    taken = limiter.hit("k", 2)
    assert (taken.retry_after, taken.unknown, math.isnan(taken.reset_after)) == (0.0, False, True)
    refused = limiter.hit("k")
    assert (refused.unknown, refused.never) == (True, False)
    assert all(map(math.isnan, (refused.retry_after, refused.reset_after, refused.retry_after_spread())))
    assert repr(refused) == "<Decision refused until others have ended, by 2 in flight>"


def test_who_is_cancelled_in_the_block_ends_it(home):
    """At whatever the block waits for; the cancellation goes on."""

    async def story(store: Store) -> None:
        limiter = AsyncLimiter("1 in flight", store=store, on_error="raise")
        permit = limiter.permit("k")
        inside = asyncio.Event()

        async def hold() -> None:
            async with permit:
                inside.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(hold())
        await inside.wait()
        assert (await limiter.peek("k", 0)).remaining == 0
        task.cancel()
        await asyncio.wait([task])
        assert (task.cancelled(), permit.outcome) == (True, "ignored")
        await until(lambda: not limiter._unfinished)
        assert (await limiter.peek("k", 0)).remaining == 1

    home.tell(story)


def test_an_awaited_permit_is_one_callers(home):
    """Not asked before it is awaited, asked once however often it is, and not shared while it is asked."""

    async def story(store: Store) -> None:
        limiter = AsyncLimiter("3 in flight", store=store, on_error="raise")
        permit = limiter.permit("k")
        with pytest.raises(InvalidCall, match="has to be awaited first"):
            bool(permit)
        assert (await limiter.peek("k", 0)).remaining == 3
        both = await asyncio.gather(*(one(permit) for _ in range(2)), return_exceptions=True)
        await permit
        assert permit and (await limiter.peek("k", 0)).remaining == 2
        if home.kind == "redis":  # elsewhere the answer is there before anybody else can ask
            assert [type(each) for each in both] == [type(permit), InvalidCall]
        assert await permit.release() and not await permit.release("dropped")
        assert (await limiter.peek("k", 0)).remaining == 3

    async def one(permit: Any) -> Any:
        return await permit

    home.tell(story)


@pytest.mark.parametrize("ask", ["hit", "acquire", "take_up_to", "decide"])
def test_whatever_was_asked_is_released_by_its_decision(make, ask):
    """Once: a second release frees nothing, whoever has taken it since."""
    limiter = make("3 in flight")
    limit = limiter.limits[0]
    decision = limiter.decide(Call(limit, "k", 2)) if ask == "decide" else getattr(limiter, ask)("k", 2)
    assert (decision.allowed, held(limiter)) == (True, 2)
    limiter.release(decision)
    assert held(limiter) == 0
    assert limiter.hit("k", 2)
    limiter.release(decision)
    limiter.refund(decision)
    assert held(limiter) == 2


def test_a_permit_is_given_back_in_parts(make):
    """`refund(decision, n)` units of it; what is left ends with it, and no more than that."""
    limiter = make("5 in flight")
    permit, other = limiter.permit("k", 4), limiter.permit("k")
    limiter.refund(permit.decision, 3)
    assert [holding.units for holding in limiter.holders("k")] == [1, 1]
    assert held(limiter) == 2
    assert permit.release() and held(limiter) == 1
    assert other.release() and held(limiter) == 0


def test_permits_of_one_instant_are_told_apart(make):
    """Also those of the same units: what one gives back is not the other's."""
    limiter = make("6 in flight")
    one, two, three = (limiter.permit("k", 2) for _ in range(3))
    limiter.refund(one.decision, 1)
    assert two.release() and held(limiter) == 3
    again = limiter.permit("k", 2)
    assert three.release() and held(limiter) == 3
    assert one.release() and held(limiter) == 2
    assert again.release() and held(limiter) == 0


def test_units_of_a_key_are_nobodys_permit(make):
    """`refund(key, n)` gives back what a rate was charged; what is in flight only its own decision can."""
    limiter = make(BOTH)
    limiter.hit("k", 2)
    limiter.refund("k", 2)
    assert left(limiter) == [5, 0]


def test_a_refusal_or_a_look_has_nothing_to_release(make):
    limiter = make("1 in flight")
    taken = limiter.hit("k")
    for nothing in (limiter.hit("k"), limiter.peek("k", 0), limiter.peek("other")):
        limiter.release(nothing)
        limiter.refund(nothing)
    assert held(limiter) == 1
    limiter.release(taken)
    assert held(limiter) == 0


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
    """Who comes back at the rate's instant may still be refused: no promise to make. Never comes before both."""
    limiter = make("2/hour as rate; 2 in flight as now")
    limiter.permit("k", 2)
    refused = limiter.peek("k")
    assert (refused.unknown, refused.binding.name) == (True, "now")
    assert [math.isnan(refused.retry_after), math.isnan(refused.reset_after)] == [True, True]
    assert [verdict.retry_us > 0 for verdict in refused.verdicts] == [True, False]
    assert limiter.peek("k", {"rate": 3, "now": 1}).never


def test_several_subjects_are_held_or_none(make):
    """`decide` over a rate of one and the flights of another: all or nothing, and released together."""
    limiter = make("1/second")
    rate, user, org = Limit.parse("5/hour as r"), Limit.parse("2 in flight as u"), Concurrency("3 per org")

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
    limiter = make("3 in flight")
    limiter.permit("k", 2)
    seen = {tuple(verdict[:4] for verdict in limiter.peek("k").verdicts) for _ in range(5)}
    assert seen == {tuple(verdict[:4] for verdict in limiter.permit("k").decision.verdicts)}
    assert not limiter.peek("k") and limiter.peek("k", 0)
    assert len(limiter.holders("k")) == 2


def test_a_reset_frees_everything_and_what_ends_after_it_frees_nothing(make):
    """A permit from before a reset is nobody's later one, be it of the same units, and taken a microsecond later."""
    clock = ManualClock(LATER)
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
    """What another limiter has in flight of the same key stays, and ends as it should."""
    one = make("2 in flight as one")
    other = beside(one, "2 in flight as other")
    kept = other.permit("k")
    one.reset("k")
    assert held(other) == 1
    kept.release()
    assert held(other) == 0


def test_a_cleared_namespace_holds_nothing(make):
    clock = ManualClock(LATER)
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
    """Also by another lease: how long it lasts is not what it counts."""
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
    limiter = make("10/hour as rate; 5 in flight as now; 4 in flight as wide")
    with limiter.permit("k", {"rate": 1, "now": 2, "wide": 4}):
        assert left(limiter) == [9, 3, 0]
        assert [(each.limit.name, each.units) for each in limiter.holders("k")] == [("now", 2), ("wide", 4)]
        assert not limiter.permit("k", {"rate": 1, "now": 1, "wide": 1})
    assert left(limiter) == [9, 5, 4]


def test_holders_are_listed_the_oldest_first(make):
    """With their ages, their units and whose they are; who has ended is not listed."""
    clock = ManualClock(LATER)
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
def test_holders_are_told_apart_by_who_holds_them(make):
    """Those of another store, as another process has, are listed and not own, be they of the same instant."""
    clock = ManualClock(LATER)
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


def test_a_guarded_function_is_in_flight_while_it_runs(make):
    """Also when it fails; what is refused raises before it begins."""
    limiter = make(BOTH)
    seen: list[list[int]] = []

    def work(user: str) -> str:
        if user == "bad":
            raise ConnectionError
        return user.upper()

    async def awaited_work(user: str) -> str:
        await asyncio.sleep(0)
        return work(user)

    guarded = limiter.guard(lambda user: "k")(awaited_work if isinstance(limiter, Awaited) else work)
    assert guarded("ann") == "ANN"
    seen.append(left(limiter))
    with pytest.raises(ConnectionError):
        guarded("bad")
    seen.append(left(limiter))
    full = limiter.permit("k", {"rate": 0, "now": 2})
    with pytest.raises(RateLimited):
        guarded("ann")
    assert [*seen, left(limiter)] == [[4, 2], [3, 2], [3, 0]]
    full.release()


def test_guards_and_slots_around_blocks_are_in_flight_in_them(make):
    """One object may be entered again and again, also while it is; each leaving ends one."""
    limiter = make("2 in flight")
    for block in (limiter.guard("k"), limiter.slot("k", timeout=0)):
        with block as decision:
            assert (decision.remaining, held(limiter)) == (1, 1)
            with block:
                assert held(limiter) == 2
                with pytest.raises(RateLimited), block:
                    pytest.fail("the body must not run")
            assert held(limiter) == 1
        assert held(limiter) == 0
        with pytest.raises(ConnectionError), block:
            raise ConnectionError
        assert held(limiter) == 0


def test_generators_are_not_guarded_by_what_is_in_flight():
    """They return before they begin; whoever iterates over them is in flight."""
    limiter, awaited = Limiter("1 in flight"), AsyncLimiter("1 in flight")

    def generator() -> Iterator[int]:
        yield 1

    async def async_generator() -> Any:
        yield 1

    for guard, function in ((limiter.guard("k"), generator), (awaited.guard("k"), async_generator)):
        with pytest.raises(InvalidCall, match="generator"):
            guard(function)
    assert inspect.isgenerator(Limiter("1/second").guard("k")(generator)())


def test_what_is_in_flight_is_neither_reserved_nor_leased_nor_shaped(make):
    """A reservation is for later, and nobody knows when something ends."""
    for limits in ("1 in flight", BOTH):
        limiter = make(limits)
        for max_wait in (None, 0, 5):
            with pytest.raises(InvalidCall, match=r"held, not reserved: take a permit\(key\)"):
                limiter.reserve("k", 1, max_wait)
        assert set(left(limiter)) == {limit.amount for limit in limiter.limits}
    with pytest.raises(InvalidLimit, match="1 in flight cannot be leased"):
        Limiter("1 in flight", store=RedisStore("redis://localhost"), lease=True)
    with pytest.raises(InvalidCall, match="leases are for stores on a server"):
        Limiter("1 in flight", lease=True)


def test_bad_questions_hold_nothing(make):
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
    """A `Concurrency` arrives as the limit that it is."""
    limit = Concurrency("20 per user", ttl="10s")
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
        with limiter.guard("k"), limiter.slot("k"):
            limiter.release(limiter.acquire("k"))
    assert not limiter.permit("k")
    assert kept.release() and limiter.permit("k")
    reset_all(limiter)
    assert held(limiter) == 0


async def one(permit: Any) -> Any:
    return await permit


@contextmanager
def away(limiter: Any) -> Iterator[None]:
    """Its home cannot be reached."""
    store = limiter.store
    if isinstance(store, RedisStore):
        store._nodes._origin.breaker.open = True
        yield
        store._nodes._origin.breaker.open = False
    else:
        store._book.leave()  # as a forked child that finds every number taken
        yield
        store.rejoin()


REMOTE = [way for way in EVERY_WAY if "memory" not in way]


@pytest.mark.parametrize("make", REMOTE, indirect=True)
def test_degraded_permits_are_counted_here_and_given_back_here(make):
    """While its home is away a limiter counts for itself; what it counted then ends there, and nowhere else."""
    limiter = make("2 in flight as now; 9/hour as rate", on_error="local")
    with away(limiter):
        permits = [limiter.permit("k") for _ in range(3)]
        assert [(bool(each), each.decision.degraded) for each in permits] == [(True, True), (True, True), (False, True)]
        assert permits[2].decision.unknown
        assert permits[0].release() and not permits[0].release()
        assert left(limiter) == [1, 7]
        whole = limiter.hit("k")
        assert whole.degraded and left(limiter) == [0, 6]
        limiter.refund(whole)
        assert left(limiter) == [1, 6]  # what a rate let pass meanwhile stays so
        part = limiter.take_up_to("k", 5)
        assert (part.granted, left(limiter)) == (1, [0, 5])
        limiter.release(part)
    assert left(limiter) == [2, 9]
    taken = limiter.permit("k")
    assert permits[1].release() and held(limiter) == 1
    with away(limiter):
        assert left(limiter) == [2, 5]
    assert (taken.release(), left(limiter)) == (True, [2, 8])


@pytest.mark.parametrize("make", REMOTE, indirect=True)
def test_what_is_not_counted_is_not_given_back(make):
    """Who lets everything pass, or nothing, has nothing in flight; who wants errors gets them."""
    generous, strict = make("1 in flight", on_error="allow"), make("1 in flight", on_error="deny")
    honest = make("1 in flight", on_error="raise")
    with away(generous), away(strict), away(honest):
        permits = [generous.permit("k", 5) for _ in range(3)]
        assert all(permits) and all(permit.decision.degraded and permit.release() for permit in permits)
        refused = strict.permit("k")
        assert (bool(refused), refused.release(), refused.decision.retry_after) == (False, False, 1.0)
        for ask in (honest.permit, honest.hit, honest.holders, honest.reset):
            with pytest.raises(StoreError):
                ask("k")
    assert [held(limiter) for limiter in (generous, strict, honest)] == [0, 0, 0]


@pytest.mark.parametrize("make", ["redis", "redis awaited"], indirect=True)
def test_a_permit_that_cannot_be_given_back_has_ended_all_the_same(make, caplog):
    """It is not renewed any more, so its lease ends; it is told once, as an error or as a line in the log."""
    clock = ManualClock(LATER)
    quiet, honest = make("3 in flight", clock=clock, on_error="local"), make("3 in flight", clock=clock)
    told = nullcontext(), pytest.raises(StoreError, match="could not be told what to give back")
    for limiter, error in zip((quiet, honest), told, strict=True):
        permit = limiter.permit("k")
        with away(limiter):
            with error:
                permit.release()
            assert (permit.outcome, permit.release()) == ("success", False)
        assert limiter.store._keeper._held == {}
    assert [record.levelno for record in caplog.records if "a refund was lost" in record.message] == [logging.WARNING]
    assert held(honest) == 2
    clock.advance(30)
    assert held(honest) == 0


@pytest.mark.parametrize("awaited", [False, True])
def test_a_permit_takes_one_round_trip_and_its_end_another(server, awaited):
    """Also of several limits, and whatever it was asked with; an exit from the block is an end."""
    with flying_at(server, awaited) as make:
        limiter = make("5 in flight; 100/minute")
        asked = {
            "permit": lambda: limiter.permit("k").release(),
            "wait": lambda: limiter.permit("k", timeout=5).release(),
            "block": lambda: limiter.permit("k").__exit__(None, None, None),
            "hit": lambda: limiter.release(limiter.hit("k")),
            "acquire": lambda: limiter.release(limiter.acquire("k", 2)),
            "refund": lambda: limiter.refund(limiter.hit("k")),
        }
        for ask in asked.values():
            ask()  # the server has seen every script now
        for name, ask in asked.items():
            before = calls(server, "evalsha", "eval")
            ask()
            assert (name, calls(server, "evalsha", "eval") - before) == (name, 2)
        assert calls(server, "eval") <= 4
        refused = limiter.permit("k", 6)
        before = calls(server, "evalsha")
        assert not refused.release() and calls(server, "evalsha") == before


def test_what_ends_at_one_time_travels_together(server):
    """Fifty permits of one event loop are taken in one call and given back in another, more or less."""

    async def main() -> None:
        store = RedisStore(server.url, deadline=PATIENT)
        limiter = AsyncLimiter("50 in flight", store=store, on_error="raise")
        for most in (10, 5):  # the first time the server learns the scripts
            before, searched = calls(server, "evalsha", "eval"), calls(server, "zscore")
            permits = await asyncio.gather(*(one(limiter.permit("k")) for _ in range(50)))
            assert all(permits) and not await limiter.permit("k")
            assert calls(server, "zscore") - searched <= 100  # for a mark of their own: those of one instant are many
            marks = sorted(permit.decision.verdicts[0].mark for permit in permits)
            for _, same in groupby(marks, key=lambda mark: mark[0]):
                assert all(number >> UNIT_BITS == place for place, (_, number) in enumerate(same))
            assert all(await asyncio.gather(*(permit.release() for permit in permits)))
            assert calls(server, "evalsha", "eval") - before <= most
            assert (await limiter.peek("k", 0)).remaining == 50
        await store.aclose()

    asyncio.run(main())


@forks
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_that_leaves_its_parents_block_frees_nothing(home):
    """Nor by a refund: the parent's permit ends with the parent's block, and the child takes its own."""
    limiter = home.limiter("2 in flight", clock=ManualClock(LATER))
    with limiter.permit("k") as permit:
        free = 1 if home.kind != "memory" else 2  # a child has memory of its own, and nothing in flight in it

        def leave() -> tuple[object, ...]:
            before = limiter.peek("k", 0).remaining
            permit.__exit__(None, None, None)
            limiter.refund(permit.decision)
            after = limiter.peek("k", 0).remaining
            taken = limiter.permit("k", free)
            return before, after, bool(taken), sorted(holding.own for holding in limiter.holders("k"))

        whose = [False, True] if home.kind != "memory" else [True]
        assert in_child(leave) == repr((free, free, True, whose))
        expected = {"memory": 1, "shared": 1, "redis": 2}  # a dead child's lease has to end first
        assert held(limiter) == expected[home.kind]
    assert held(limiter) == expected[home.kind] - 1


def question(limiter: AsyncLimiter, ask: str, taken: Any) -> Coroutine[Any, Any, Any]:
    questions: dict[str, Callable[[], Coroutine[Any, Any, Any]]] = {
        "hit": lambda: limiter.hit("k"),
        "take_up_to": lambda: limiter.take_up_to("k", 2),
        "decide": lambda: limiter.decide(Call(limiter.limits[0], "k")),
        "guard": lambda: limiter.guard("k").__aenter__(),
        "slot": lambda: limiter.slot("k").__aenter__(),
        "permit": lambda: one(limiter.permit("k", timeout=1)),
        "refund": lambda: limiter.refund(taken),
        "release": lambda: limiter.release(taken),
    }
    return questions[ask]()


@pytest.mark.parametrize("ask", ["hit", "take_up_to", "decide", "guard", "slot", "permit", "refund", "release"])
def test_who_is_cancelled_while_it_asks_leaves_nothing_in_flight(home, ask):
    """Wherever the question or its answer is then; and a give-back is seen through."""

    async def story(store: Store) -> None:
        limiter = AsyncLimiter("2 in flight", store=store, on_error="raise")
        gives = ask in ("refund", "release")
        for turns in range(gives, 12):  # a give-back that never began is nobody's
            taken = await limiter.hit("k") if gives else None
            task = asyncio.create_task(question(limiter, ask, taken))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled() and not gives:  # it was too quick
                await limiter.release(getattr(task.result(), "decision", task.result()))
            await until(lambda: not (limiter._unfinished or getattr(limiter._door, "_kept", None)))
            assert (await limiter.peek("k", 0)).remaining == 2, turns

    home.tell(story)


def test_a_short_lease_does_not_shorten_the_life_of_longer_ones(server):
    """The server forgets a key when its last lease has ended: not with the latest charge, nor the latest renewal."""
    with flying_at(server, awaited=False) as make:
        limiter = make("3 in flight ttl 10m")
        limiter.permit("k")
        short = limiter.hit("k", limit="3 in flight ttl 1s")
        (key,) = server.client().keys("*")
        assert server.client().pttl(key) > 500_000
        keeper = limiter.store._keeper
        keeper._renew([permit for permit in keeper._held.values() if permit.limit.period == 1])
        assert server.client().pttl(key) > 500_000
        limiter.release(short)
        assert held(limiter) == 1


def test_renewing_remembers_limits_and_not_limiters(server):
    """However many limiters come and go on a store, what is kept for renewals does not grow."""
    with flying_at(server, awaited=False) as make:
        for _ in range(20):
            limiter = make("1 in flight")
            with limiter.permit("k"):
                keeper = limiter.store._keeper
                keeper._renew(list(keeper._held.values()))
        assert (len(keeper._plans), len(keeper._held)) == (1, 0)


def test_heavy_permits_are_renewed_a_few_at_a_time(server):
    """A server works on every unit of them, and on nothing else meanwhile; one that is too heavy goes alone."""
    with flying_at(server, awaited=False) as make:
        limiter = make("9999 in flight")
        permits = [limiter.permit("k", units) for units in (400, 400, 400, 2500, 1000, 1, 999)]
        keeper = limiter.store._keeper
        keeper._renew(list(keeper._held.values()))  # the server knows the script now
        before = calls(server, "evalsha")
        keeper._renew(list(keeper._held.values()))
        assert calls(server, "evalsha") - before == 5
        assert len(keeper._held) == 7 and all(permit.release() for permit in permits)


def test_a_permit_that_could_not_be_renewed_is_not_held(server, monkeypatch):
    """No thread can be started: an error, and the lease ends. The next permit tries again, and renews its own only."""
    with flying_at(server, awaited=False) as make:
        limiter = make("3 in flight ttl 10m")
        keeper = limiter.store._keeper
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse_to_start)
            with pytest.raises(RuntimeError, match="can't start new thread"):
                limiter.permit("k")
        assert (keeper._held, keeper._thread) == ({}, None)
        permit = limiter.permit("k")
        assert len(keeper._held) == 1 and keeper._thread.is_alive()
        permit.release()


def refuse_to_start(thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")
