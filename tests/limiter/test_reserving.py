"""Reservations: charged now, usable after an exact delay, given back once."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest

from headgate import AsyncLimiter, InvalidCall, Limiter, RateLimited
from headgate.testing import ManualClock
from tests.support.homes import LATER, PATIENCE, Interrupting, in_each_home, let_run, until
from tests.support.processes import CONTEXT

NO_PROMISE = [f"10/second {how}" for how in ("by fixed-window", "by sliding-log", "by sliding-window", "block 5s")]


@pytest.mark.parametrize(
    ("text", "costs", "delays"),
    [
        ("10/second burst 2", [1, 1, 1, 1, 2], [0, 0, 100_000, 200_000, 400_000]),
        ("7/second burst 3", [3, 1, 1, 2, 3], [0, 142_858, 285_715, 571_429, 1_000_000]),
        ("3/70ms burst 4", [4, 1, 0, 1, 4], [0, 23_334, 0, 46_667, 140_000]),
        ("10/minute burst 5 by gcra", [5, 5, 5], [0, 30_000_000, 60_000_000]),
        ("10/minute burst 5 by leaky-bucket", [4, 2, 5], [0, 6_000_000, 36_000_000]),
    ],
)
def test_a_delay_is_exact_and_charged_at_once(make, text, costs, delays, clock):
    """In whole microseconds, rounded up; a hit is refused until all that was promised is due."""
    limiter = make(text, clock=clock)
    reservations = [limiter.reserve("k", cost) for cost in costs]
    assert [round(each.delay * 1e6) for each in reservations] == delays
    assert all(reservations)
    assert limiter.peek("k", 0).remaining == 0
    alone = make(text, clock=clock, namespace="alone")
    rest = sum(costs)
    while rest:  # the books are as if one after the other had been owed
        chunk = min(rest, alone.limits[0].burst)
        alone.reserve("k", chunk)
        rest -= chunk
    assert limiter.peek("k", 0).verdicts == alone.peek("k", 0).verdicts


def test_a_hit_may_not_pass_what_was_reserved(make, clock):
    """Refused one microsecond before the debt is repaid and its own cost has come back, admitted at it."""
    limiter = make("10/second burst 5", clock=clock)
    limiter.hit("k", 5)
    assert limiter.reserve("k", 5).delay == 0.5
    refused = limiter.hit("k", 2)
    assert (refused.allowed, refused.remaining, refused.retry_after) == (False, 0, 0.7)
    clock.us += 699_999
    assert not limiter.hit("k", 2)
    clock.us += 1
    assert limiter.hit("k", 2).remaining == 0


def test_what_would_take_longer_is_refused_and_charges_nothing(make, clock):
    """One microsecond more than `max_wait`; just as long is fine."""
    limiter = make("10/second burst 5", clock=clock)
    limiter.hit("k", 5)
    before = limiter.peek("k", 0).verdicts
    refused = limiter.reserve("k", 3, max_wait=0.299999)
    assert (bool(refused), refused.delay, refused.retry_after) == (False, 0.0, 0.3)
    assert limiter.peek("k", 0).verdicts == before
    never = limiter.reserve("k", 6)
    assert (bool(never), never.retry_after, never.decision.never) == (False, math.inf, True)
    assert limiter.reserve("k", 3, max_wait=0.3).delay == 0.3
    assert not limiter.reserve("k", 1, max_wait=0)


def test_an_hour_is_the_most_that_is_promised(make, clock):
    """If nothing is said, and at all."""
    limiter = make("1/minute burst 30", clock=clock)
    assert [limiter.reserve("k", 30).delay for _ in range(3)] == [0.0, 1800.0, 3600.0]
    refused = limiter.reserve("k")
    assert (bool(refused), refused.retry_after) == (False, 3660.0)
    with pytest.raises(InvalidCall, match="at most 3600 s; got max_wait=3600.5"):
        limiter.reserve("k", max_wait=3600.5)
    assert limiter.reserve("other", max_wait=3600)


@pytest.mark.parametrize("text", NO_PROMISE)
def test_who_cannot_promise_says_so(make, text, clock):
    """Windows, logs and blocks reserve what fits now; a `max_wait` is an error that says what to do instead."""
    limiter = make(text, clock=clock)
    for wait in (0.001, 5, 4000):
        with pytest.raises(InvalidCall, match="cannot promise a delay.*max_wait=0 to reserve .* or acquire"):
            limiter.reserve("k", max_wait=wait)
    assert [limiter.reserve("k", 5, **wait).delay for wait in ({}, {"max_wait": 0})] == [0.0, 0.0]
    refused = limiter.reserve("k")
    assert (bool(refused), refused.retry_after) == (False, limiter.peek("k").retry_after)
    mixed = make("10/second as a", f"{text} as b", clock=clock)
    with pytest.raises(InvalidCall, match=" as b cannot promise"):
        mixed.reserve("k", max_wait=1)
    assert mixed.reserve("k", 10)
    assert not mixed.reserve("k")


def test_cancel_gives_back_once(make, clock):
    """In any order, however often: the books are as if nobody had come. Of a refusal there is nothing to give."""
    limiter = make("7/second burst 3", clock=clock)
    limiter.hit("k", 2)
    before = limiter.peek("k", 0).verdicts
    reservations = [limiter.reserve("k", cost) for cost in (1, 3, 2, 1, 3)]
    refused = limiter.reserve("k", max_wait=0)
    for number in (3, 0, 4, 1, 2, 0, 3):
        reservations[number].cancel()
        refused.cancel()
    assert limiter.peek("k", 0).verdicts == before


@pytest.mark.parametrize("text", NO_PROMISE)
def test_cancel_gives_back_to_windows_and_logs_too(make, text, clock):
    """Two cancelled reservations leave the verdicts of before, and a second cancel changes nothing."""
    limiter = make(text, clock=clock)
    limiter.hit("k", 2)
    before = limiter.peek("k", 0).verdicts
    one, other = limiter.reserve("k", 5), limiter.reserve("k", 3)
    one.cancel()
    one.cancel()
    assert limiter.peek("k", 0).remaining == 5
    other.cancel()
    assert limiter.peek("k", 0).verdicts == before


def test_cancelled_after_its_time_has_come_it_gives_what_has_not_drained(make, clock):
    """Ten units that began to drain half a second ago have five left to give."""
    limiter = make("10/second burst 10", clock=clock)
    limiter.hit("k", 10)
    late = limiter.reserve("k", 10)
    clock.advance(1.5)
    late.cancel()
    assert limiter.peek("k", 0).remaining == 10
    clock.advance(10)
    alone = limiter.reserve("k", 10)
    clock.advance(0.5)
    alone.cancel()
    assert limiter.hit("k", 10).reset_after == 1.0


def test_an_abandoned_reservation_drains(make, clock):
    """Nothing has to be cleaned up: after its time the key has its whole burst."""
    limiter = make("10/second burst 10", clock=clock)
    for _ in range(3):
        limiter.reserve("k", 10)
    clock.advance(3 - 1e-6)
    assert not limiter.peek("k", 10)
    clock.advance(1e-6)
    assert limiter.peek("k", 10) and limiter.peek("k", 0).reset_us == 0


def test_a_plan_reserves_by_its_own_numbers(make, clock):
    """Delays, refusals and what never fits follow the plan's rate and burst."""
    limiter = make("10/second burst 10", clock=clock)
    plan = "2/second burst 2"
    assert [limiter.reserve("k", 2, limit=plan).delay for _ in range(3)] == [0.0, 1.0, 2.0]
    assert limiter.reserve("k", 3, limit=plan).decision.never
    assert not limiter.reserve("k", 2, max_wait=1, limit=plan)


def test_it_waits_on_entering_and_raises_what_was_refused(home, clock):
    """`with` waits until the reservation may be used; a refusal raises before the body."""
    limiter = home.limiter("10/second burst 5", clock=clock)
    with limiter.reserve("k", 5) as reservation:
        assert (reservation.delay, clock.now()) == (0.0, LATER)
    with limiter.reserve("k", 3) as reservation:
        assert (reservation.delay, clock.now()) == (0.3, LATER + 0.3)
        reservation.wait()
        assert clock.now() == LATER + 0.3
    refused = limiter.reserve("k", 3, max_wait=0.1)
    with pytest.raises(RateLimited, match="retry after 0.3 s"), refused:
        pytest.fail("the body must not run")
    with pytest.raises(RateLimited):
        refused.wait()


def test_a_body_that_raises_gives_everything_back(home, clock):
    """Unless it settled first: then that is what it cost."""
    limiter = home.limiter("10/second burst 5", clock=clock)
    with pytest.raises(ConnectionError), limiter.reserve("k", 4):
        raise ConnectionError
    assert limiter.peek("k", 0).remaining == 5
    with pytest.raises(ConnectionError), limiter.reserve("k", 4) as reservation:
        reservation.settle(3)
        raise ConnectionError
    assert limiter.peek("k", 0).remaining == 2


def test_an_interrupted_wait_gives_everything_back(home):
    """Ctrl-C on entering."""
    limiter = home.limiter("10/second burst 5", clock=Interrupting(LATER))
    limiter.hit("k", 5)
    before = limiter.peek("k", 0).verdicts
    with pytest.raises(KeyboardInterrupt), limiter.reserve("k", 5):
        pytest.fail("the body must not run")
    assert limiter.peek("k", 0).verdicts == before


@in_each_home
async def test_the_same_awaited(store, clock):
    """`async with await limiter.reserve(...)`: waits, raises, gives back when the body raises or is cancelled."""
    limiter = AsyncLimiter("10/second burst 5", store=store, on_error="raise")
    await limiter.hit("k", 5)
    before = (await limiter.peek("k", 0)).verdicts
    inside = []

    async def use() -> None:
        async with await limiter.reserve("k", 5) as reservation:
            inside.append(reservation.delay)
            await asyncio.Event().wait()

    async def until_charged(units: int) -> None:
        async with asyncio.timeout(PATIENCE):
            while (await limiter.peek("k", 0)).reset_us != units * 100_000:
                await asyncio.sleep(0.001)

    using = asyncio.create_task(use())
    await until_charged(10)
    with pytest.raises(RateLimited):
        async with await limiter.reserve("k", 5, max_wait=0.1):
            pytest.fail("the body must not run")
    entering, inside_now = asyncio.create_task(use()), len(inside)
    await until_charged(15)
    entering.cancel()
    await asyncio.wait([entering])
    assert inside_now == 0
    await until_charged(10)
    clock.us += 499_999
    clock.advance(0)
    await let_run()
    assert inside == []
    clock.advance(1e-6)
    await until(lambda: inside == [0.5])
    clock.us -= 500_000
    using.cancel()
    await asyncio.wait([using])
    assert (await limiter.peek("k", 0)).verdicts == before


def hold_there(url: str, ready: Any) -> None:
    """In a process of its own: reserve, and never say what became of it."""
    limiter = Limiter("10/second burst 10", store=url, clock=ManualClock(LATER), on_error="raise")
    kept = [limiter.reserve("k", 10) for _ in range(3)]
    ready.send([each.delay for each in kept])
    ready.recv()


@pytest.mark.parametrize("home", ["shared", "redis"], indirect=True)
def test_a_killed_process_leaves_what_it_charged_which_drains(home, clock):
    """SIGKILL while it holds three reservations: nothing more, nothing less."""
    here, there = CONTEXT.Pipe()
    process = CONTEXT.Process(target=hold_there, args=(home.url, there))
    process.start()
    assert here.recv() == [0.0, 1.0, 2.0]
    process.kill()
    process.join()
    limiter = home.limiter("10/second burst 10", clock=clock)
    assert limiter.peek("k", 0).reset_after == 3.0
    assert limiter.reserve("k", 5).delay == 2.5
    clock.advance(3.5)
    assert limiter.peek("k", 0).reset_us == 0
