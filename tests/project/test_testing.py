"""The tools for users' own tests."""

from __future__ import annotations

import asyncio
import math
from datetime import timedelta

import pytest

from headgate import AsyncLimiter, Call, Decision, InvalidCall, Limiter, RateLimited
from headgate.testing import ManualClock, disabled, frozen, refusing, reset_all


def test_a_manual_clock_moves_when_told():
    """It starts at 0, moves to the nearest microsecond, steps back when asked, and never leaves its range."""
    clock = ManualClock()
    assert (clock.now(), clock.now_us()) == (0.0, 0)
    clock.advance(1.5)
    clock.advance(0.0000004)
    assert clock.us == 1_500_000
    clock.advance(-0.5)
    assert clock.now() == 1.0
    clock.set(1e9)
    assert (clock.us, repr(clock)) == (10**15, "ManualClock(1000000000.0)")
    for wrong in (lambda: clock.advance(-2e9), lambda: clock.set(-1), lambda: ManualClock(1e10)):
        with pytest.raises(ValueError, match="a clock must be at 0 to"):
            wrong()


def test_frozen_limits_move_with_their_clock():
    """Inside, states are fresh and time stands still; outside, everything is as it was."""
    limiter, other = Limiter("2/day"), AsyncLimiter("2/day")
    limiter.hit("k")
    with frozen(limiter, other) as clock:
        assert limiter.hit("k", 2).reset_after == 86_400.0
        assert not limiter.hit("k")
        assert not asyncio.run(other.hit("k"))  # frozen together, on one store
        clock.advance(43_200)
        assert limiter.hit("k")
    assert limiter.hit("k").remaining == 0


def test_disabled_limits_let_everything_pass():
    """Every method answers yes and counts nothing; bad input is still an error."""
    limiter, other = Limiter("2/day; 5/week"), AsyncLimiter("1/day")
    limiter.hit("k", 2)
    with disabled(limiter, other):
        for decision in (
            limiter.hit("k", 9),
            limiter.peek("k"),
            limiter.take_up_to("k", 9),
            asyncio.run(other.hit("k")),
        ):
            assert decision
        assert limiter.take_up_to("k", 9).granted == 9
        assert limiter.hit("k", 3, limit="9/day; 9/week").limit == 9
        assert limiter.decide(Call("1/s", "k", 50), Call("1/s", "j")).granted == 50
        limiter.refund(limiter.hit("k"))
        limiter.reset("k")
        with limiter.permit("k", cost=7):
            pass
        with pytest.raises(InvalidCall):
            limiter.hit("")
    assert not limiter.hit("k")


def test_reset_all_forgets_every_key():
    """Of the limiters given, and of no other."""
    clock = ManualClock(1e9)
    limiters = [Limiter("1/day", clock=clock) for _ in range(3)]
    for limiter in limiters:
        limiter.hit("a")
        limiter.hit("b")
    reset_all(*limiters[:2])
    assert [limiter.hit("a").allowed for limiter in limiters] == [True, True, False]
    assert [limiter.hit("b").allowed for limiter in limiters] == [True, True, False]


def test_the_suite_fails_a_store_that_forgets():
    """A store whose states never last is found out: the suite can fail."""
    from headgate import MemoryStore
    from headgate.testing import StoreSuite

    class Forgetful(MemoryStore):
        def _table(self, namespace, limit):
            self._tables.clear()
            return super()._table(namespace, limit)

    class Suite(StoreSuite):
        def store(self, clock):
            return Forgetful(clock=clock)

    with pytest.raises(AssertionError):
        Suite().test_same_identity_same_budget()
    with pytest.raises(TypeError):
        StoreSuite().test_admits_exactly_the_limit()


@pytest.mark.parametrize(("retry_after", "never"), [(30, False), (math.inf, True)])
def test_refusing_refuses_every_request_and_lets_nobody_wait(retry_after, never):
    """Every verb of each limiter is refused with the wait that is given; afterwards all is as before."""
    limiter, other = Limiter("5/minute"), Limiter("3 in flight")
    limiter.hit("k", 2)
    with refusing(limiter, other, retry_after=retry_after):
        for refused in (limiter.hit("k"), limiter.peek("new"), limiter.acquire("k"), other.permit("k").decision):
            assert (refused.allowed, refused.retry_after, refused.never) == (False, retry_after, never)
        with pytest.raises(RateLimited):
            limiter.limited("k", timeout=None)(print)()
        assert not asyncio.run(_refused_by_an_async_limiter(retry_after))
    assert limiter.hit("k").remaining == 2
    assert other.permit("k")


async def _refused_by_an_async_limiter(retry_after: float) -> Decision:
    limiter = AsyncLimiter("5/minute")
    with refusing(limiter, retry_after=retry_after):
        return await limiter.acquire("k", timeout=None)


@pytest.mark.parametrize("wrong", [0, -1, True, "30", math.nan])
def test_refusing_needs_a_time(wrong):
    """A wait of nothing is no refusal."""
    with (
        pytest.raises(InvalidCall, match="a number of seconds above 0"),
        refusing(Limiter("5/minute"), retry_after=wrong),
    ):
        pass


@pytest.mark.parametrize("control", [frozen, disabled, refusing])
@pytest.mark.parametrize("wrong", [42, None, object()], ids=["number", "none", "object"])
def test_only_limits_can_be_controlled(control, wrong):
    """An app in place of its limits is an error that tells what to give, as anything else is."""
    with pytest.raises(InvalidCall, match="limits are those of a limiter, .* or RateLimits of an app; got "):
        control(wrong).__enter__()
    with pytest.raises(InvalidCall, match="limits are those of a limiter"):
        reset_all(wrong)


@pytest.mark.parametrize("wrong", [math.nan, math.inf, "60", None, timedelta(seconds=1)], ids=repr)
def test_a_clock_is_moved_by_a_number(wrong):
    """A time that is no finite number moves no clock."""
    clock = ManualClock(5)
    for move in (clock.advance, clock.set):
        with pytest.raises(InvalidCall, match="a clock is moved by a finite number of seconds; got "):
            move(wrong)
    assert clock.now() == 5


def test_a_clock_stays_between_its_bounds():
    """Neither an instant before 1970 nor one beyond 2**53 microseconds is taken."""
    clock = ManualClock()
    for seconds in (-1, 2**53 / 1e6):
        with pytest.raises(InvalidCall, match="a clock must be at 0 to"):
            clock.advance(seconds)
