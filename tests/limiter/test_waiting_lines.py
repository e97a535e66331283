"""Standing in line: windows, logs and blocks promise no time, so their callers wait for their turn in one process."""

from __future__ import annotations

import asyncio
import random

import pytest

from headgate import AsyncLimiter, Limiter, MemoryStore
from headgate.testing import ManualClock
from tests.support.awaiting import awaited
from tests.support.homes import LATER, crowd, in_each_home, in_line, let_run, nobody_waits, until, waiting
from tests.support.stores import Slow

WINDOW = "4/second by fixed-window"
EVERY_KIND = ("10/second burst 4", WINDOW, "4/second by sliding-log", "4/second block 1s")


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("text", EVERY_KIND)
@in_each_home
async def test_tasks_go_in_the_order_they_came(store, clock, text, at_once):
    """Small ones never pass a large one that came before them, not even while its question is on the way."""
    limiter = AsyncLimiter(text, store=store, on_error="raise")
    done: list[int] = []
    seen = []
    tasks = await crowd(limiter, [1, 2, 4, 1, 1, 3, 1, 4, 1], done, at_once)
    while len(done) < 9:
        await let_run()
        seen.append(len(done))
        clock.advance(0.1)
    await asyncio.gather(*tasks)
    assert done == list(range(9))
    assert seen[0] == 2 and len(set(seen)) > 3
    assert nobody_waits(limiter)


@in_each_home
async def test_who_stood_behind_a_cancelled_task_moves_up(store, clock):
    """The head of a line is cancelled: the next one is called at once, and asks."""
    limiter = AsyncLimiter(WINDOW, store=store, on_error="raise")
    await limiter.hit("k", 3)
    large = asyncio.create_task(limiter.acquire("k", 4))
    await waiting(limiter, 1)
    small = asyncio.create_task(limiter.acquire("k"))
    await waiting(limiter, 2)
    large.cancel()
    assert (await small).remaining == 0
    assert clock.now() == LATER


@in_each_home
async def test_somebody_in_line_is_refused_when_the_timeout_is_over(store, clock):
    """It cannot be known before whether its turn comes: the head takes the whole window."""
    limiter = AsyncLimiter(WINDOW, store=store, on_error="raise")
    await limiter.hit("k", 4)
    head = asyncio.create_task(limiter.acquire("k", 4))
    await waiting(limiter, 1)
    second = asyncio.create_task(limiter.acquire("k", 4, timeout=1.5))
    await waiting(limiter, 2)
    assert not await limiter.acquire("k", 4, timeout=0.5)
    clock.advance(1)
    assert await head
    await let_run()
    clock.advance(0.499999)
    await let_run()
    clock.advance(0.000001)
    assert not await second
    assert (in_line(limiter), (await limiter.peek("k", 0)).remaining) == (0, 0)


@in_each_home
async def test_a_caller_that_cannot_be_served_in_time_behind_others_is_refused_at_once(store, clock):
    """Two units are left and the head waits for four: a caller that would fit now has to wait for the next window."""
    limiter = AsyncLimiter(WINDOW, store=store, on_error="raise")
    await limiter.hit("k", 2)
    head = asyncio.create_task(limiter.acquire("k", 4))
    await waiting(limiter, 1)
    async with asyncio.timeout(60):
        refused = await limiter.acquire("k", timeout=0.5)
    assert (refused.allowed, refused.retry_after, clock.now()) == (False, 1.0, LATER)
    clock.advance(1)
    assert await head


@in_each_home
async def test_the_small_ones_behind_a_large_one_are_not_let_in_when_too_many_wait(store, clock):
    """Where nobody more may wait a newcomer is refused, though it would fit: a yes that charges nothing is no yes."""
    limiter = AsyncLimiter(WINDOW, store=store, on_error="raise", max_waiting=1)
    await limiter.hit("k", 2)
    large = asyncio.create_task(limiter.acquire("k", 4))
    await waiting(limiter, 1)
    assert [(await limiter.acquire("k")).allowed for _ in range(5)] == [False] * 5
    assert [(await limiter.acquire("k", timeout=5)).allowed for _ in range(5)] == [False] * 5
    assert (await limiter.peek("k", 0)).remaining == 2
    clock.advance(1)
    assert (await large).remaining == 0


@awaited
async def test_a_charge_is_given_back_if_the_last_place_in_line_was_taken_meanwhile():
    """The store's answers take a while: a small cost is charged as a large one ahead of it begins to wait."""
    clock = ManualClock(LATER)
    limiter = AsyncLimiter(WINDOW, store=Slow(MemoryStore(clock=clock)), on_error="raise", max_waiting=1)
    await limiter.hit("k", 2)
    large, small = [asyncio.create_task(limiter.acquire("k", cost)) for cost in (4, 1)]
    assert not await small
    assert (in_line(limiter), (await limiter.peek("k", 0)).remaining) == (1, 2)
    clock.advance(1)
    assert await large


@pytest.mark.parametrize("cost", [1, {"n": 1}])
@in_each_home
async def test_a_turn_that_did_not_come_in_time_is_a_refusal(store, clock, cost):
    """A small one behind a large one: it would fit, and is still not admitted when its time is up."""
    limiter = AsyncLimiter(f"{WINDOW} as n", store=store, on_error="raise")
    await limiter.hit("k", 2)
    large = asyncio.create_task(limiter.acquire("k", {"n": 4}))
    await waiting(limiter, 1)
    small = asyncio.create_task(limiter.acquire("k", cost, timeout=0.5))
    await waiting(limiter, 2, asleep=2)
    clock.advance(0.5)
    answer = await small
    assert (answer.allowed, answer.granted, answer.retry_after > 0) == (False, 0, True)
    assert (await limiter.peek("k", 0)).remaining == 2
    clock.advance(0.5)
    assert await large


@in_each_home
async def test_who_would_not_wait_at_all_is_answered_at_once(store, clock):
    """Behind somebody large, with a timeout of nothing: refused before time goes on, though it would fit."""
    limiter = AsyncLimiter(f"{WINDOW} as n", store=store, on_error="raise")
    await limiter.hit("k", 2)
    large = asyncio.create_task(limiter.acquire("k", {"n": 4}))
    await waiting(limiter, 1)
    async with asyncio.timeout(5):
        assert not await limiter.acquire("k", 1, timeout=0)
    large.cancel()


@in_each_home
async def test_who_comes_as_the_head_is_called_is_not_let_in_for_nothing(store, clock):
    """The window has just opened and the head has not asked yet: the newcomer is charged, or refused."""
    limiter = AsyncLimiter(WINDOW, store=store, on_error="raise")
    await limiter.hit("k", 4)
    head = asyncio.create_task(limiter.acquire("k"))
    await waiting(limiter, 1)
    clock.advance(1)
    newcomer = await limiter.acquire("k", timeout=0)
    assert await head
    assert 4 - (await limiter.peek("k", 0)).remaining == 1 + newcomer.granted


@in_each_home
async def test_a_plan_with_a_smaller_burst_waits_behind_others(store, clock):
    """All callers in line want more together than the plan's burst; that is no reason to refuse one for ever."""
    plan = "2/second by fixed-window"
    limiter = AsyncLimiter(WINDOW, store=store, on_error="raise")
    await limiter.hit("k", 2, limit=plan)
    first = asyncio.create_task(limiter.acquire("k", 2, limit=plan))
    await waiting(limiter, 1)
    second = asyncio.create_task(limiter.acquire("k", 1, timeout=1e6, limit=plan))
    await until(lambda: in_line(limiter) == 2 or second.done())
    assert not second.done()
    clock.advance(1)
    assert await first
    while not second.done():
        await let_run()
        clock.advance(0.1)
    assert await second


@in_each_home
async def test_the_line_of_one_key_is_not_that_of_another(store, clock):
    """A caller that waits for one key does not delay callers of another key."""
    limiter = AsyncLimiter(WINDOW, store=store, on_error="raise")
    await limiter.hit("k", 4)
    waiter = asyncio.create_task(limiter.acquire("k"))
    await waiting(limiter, 1)
    assert [(await limiter.acquire("other")).remaining for _ in range(4)] == [3, 2, 1, 0]
    assert (await limiter.acquire("third", timeout=0)).remaining == 3
    assert not waiter.done()
    clock.advance(1)
    assert await waiter


@awaited
async def test_many_may_stand_in_line_and_leave_it_in_any_order(clock):
    """Two thousand, half of them cancelled at random: the others go, four a second, in the order they came."""
    limiter = AsyncLimiter(WINDOW, clock=clock)
    await limiter.hit("k", 4)
    done: list[int] = []
    tasks = await crowd(limiter, [1] * 2_000, done, at_once=True)
    gone = random.Random(7).sample(range(2_000), 1_900)
    for number in gone:
        tasks[number].cancel()
    await asyncio.gather(*(tasks[number] for number in gone), return_exceptions=True)
    for second in range(1, 26):
        clock.advance(1)
        await let_run(60)
        assert len(done) == 4 * second
    assert done == sorted(set(range(2_000)) - set(gone))
    assert nobody_waits(limiter)


def test_a_waiter_asks_when_it_was_told_to_and_not_before(clock):
    """However long it waits, a bucket is asked once more and a window twice: now, and at the instant."""
    for text, most in (("4/hour", 1), ("4/hour by fixed-window", 3), ("4/hour by sliding-log", 3)):
        limiter = Limiter(text, clock=clock)
        limiter.hit("k", 4)
        reserve = limiter._reserve
        asked: list[int] = []

        def counting(*question, asked=asked, reserve=reserve):
            asked.append(clock.us)
            return reserve(*question)

        limiter._reserve = counting  # type: ignore[method-assign]
        start = clock.us
        assert limiter.acquire("k")
        assert len(asked) <= most
        assert set(asked) <= {start, clock.us}
