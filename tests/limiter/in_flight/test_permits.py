"""Permits on every home, threaded and awaited: taken, refused, given back, and never more than the limit at once."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest

from headgate import AsyncLimiter, Call, InvalidCall, Limiter, RateLimited, steps
from headgate.stores import Store
from headgate.testing import ManualClock
from tests.support.flight import held, left, renewed
from tests.support.homes import in_each_home, until

BOTH = "5/hour as rate; 2 in flight as now"


def test_the_ledger_of_one_key(make):
    """The limit's number pass at once, and one more as soon as one has ended; a refusal has an unknown time."""
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
    with pytest.raises(RateLimited, match="the cost can never fit"), refused:
        pytest.fail("the body must not run")
    assert held(limiter) == 0


def test_a_cost_of_nothing_is_always_allowed_and_holds_nothing(make):
    """A permit of no units is granted beside a full limit, and its release frees nothing."""
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
    """An outcome is one of three words; with another one the permit is not released."""
    limiter = make("1 in flight")
    permit = limiter.permit("k")
    for wrong in ("", "ok", "SUCCESS", None, 1):
        with pytest.raises(InvalidCall, match="one of success, ignored, dropped"):
            permit.release(wrong)
    assert (permit.outcome, held(limiter)) == (None, 1)


def test_a_refused_permit_has_nothing_to_end(make):
    """The release of a refused permit returns False, and frees nobody else's."""
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
    """A `with` block over a full limit raises `RateLimited`, whose wait is not known."""
    limiter = make("1 in flight as api")
    limiter.permit("k")
    with pytest.raises(RateLimited) as error, limiter.permit("k"):
        pytest.fail("the body must not run")
    assert str(error.value) == "rate limited by 1 in flight as api: retry when a permit is released"
    assert error.value.decision.unknown and math.isinf(error.value.retry_after)


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
    """The repr of a permit tells whether it is held, refused or how it ended."""
    limiter = Limiter("1 in flight", clock=ManualClock())
    permit, refused = limiter.permit("k"), limiter.permit("k")
    assert repr(permit) == "<Permit held, <Decision allowed, 0 of 1 left, by 1 in flight>>"
    assert repr(refused) == "<Permit refused, <Decision refused until a permit is released, by 1 in flight>>"
    permit.release("dropped")
    assert repr(permit).startswith("<Permit dropped, ")


def test_of_what_is_in_flight_nobody_knows_the_future(make):
    """retry_after and reset_after are no numbers where they depend on others; spread for a crowd neither."""
    limiter = make("2 in flight")
    fresh = limiter.peek("k", 0)
    assert (fresh.retry_after, fresh.reset_after, fresh.unknown) == (0.0, 0.0, False)
    taken = limiter.hit("k", 2)
    assert (taken.retry_after, taken.unknown, math.isinf(taken.reset_after)) == (0.0, False, True)
    refused = limiter.hit("k")
    assert (refused.unknown, refused.never) == (True, False)
    assert all(map(math.isinf, (refused.retry_after, refused.reset_after, refused.retry_after_spread())))
    assert repr(refused) == "<Decision refused until a permit is released, by 2 in flight>"


@in_each_home
async def test_who_is_cancelled_in_the_block_ends_it(store):
    """At whatever the block waits for; the cancellation goes on."""
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
    await until(lambda: not steps.unfinished)
    assert (await limiter.peek("k", 0)).remaining == 1


def test_an_awaited_permit_is_one_callers(home):
    """A permit is not asked before it is awaited, is asked once however often that is, and is not shared meanwhile."""

    async def story(store: Store) -> None:
        limiter = AsyncLimiter("3 in flight", store=store, on_error="raise")
        permit = limiter.permit("k")
        with pytest.raises(InvalidCall, match="was not awaited"):
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
    """A decision frees its permits once: a second release frees nothing, also when another caller has them since."""
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
    """Permits of the same units too: what one gives back is not another's, not even one's that took a free place."""
    limiter = make("6 in flight")
    one, two, three = (limiter.permit("k", 2) for _ in range(3))
    limiter.refund(one.decision, 1)
    assert two.release() and held(limiter) == 3
    again = limiter.permit("k", 2)
    limiter.refund(three.decision, 1)
    assert again.release() and held(limiter) == 2
    assert three.release() and held(limiter) == 1
    assert one.release() and held(limiter) == 0


def test_units_of_a_key_are_nobodys_permit(make):
    """`refund(key, n)` gives back what a rate was charged; what is in flight only its own decision can."""
    limiter = make(BOTH)
    limiter.hit("k", 2)
    limiter.refund("k", 2)
    assert left(limiter) == [5, 0]


def test_a_refusal_or_a_look_has_nothing_to_release(make):
    """Decisions that took no permit give none back."""
    limiter = make("1 in flight")
    taken = limiter.hit("k")
    for nothing in (limiter.hit("k"), limiter.peek("k", 0), limiter.peek("other")):
        limiter.release(nothing)
        limiter.refund(nothing)
    assert held(limiter) == 1
    limiter.release(taken)
    assert held(limiter) == 0
