"""Waiting in an event loop: one queue, one timer, and exact counts, whichever tasks were cancelled."""

from __future__ import annotations

import asyncio
import random

import pytest

from headgate import AsyncLimiter, RateLimited, steps
from headgate.stores import Store
from headgate.testing import ManualClock
from tests.support.awaiting import awaited
from tests.support.homes import (
    LATER,
    cancel_at_random,
    crowd,
    in_each_home,
    in_line,
    let_run,
    nobody_waits,
    until,
    waiting,
)
from tests.support.inside import queue_of, timers_of

BUCKET, WINDOW = "10/second burst 4", "4/second by fixed-window"


@in_each_home
async def test_tasks_of_a_bucket_go_at_their_instants(store, clock):
    """A task goes at the instant that the books say, not one microsecond early."""
    limiter = AsyncLimiter("7/second burst 1", store=store, on_error="raise")
    done: list[int] = []
    tasks = await crowd(limiter, [1] * 8, done)
    for number in range(1, 8):
        due = round(LATER * 1e6) + -(-1_000_000 * number // 7)
        clock.us = due - 1
        clock.advance(0)
        await let_run()
        assert len(done) == number
        clock.advance(0.000001)
        await until(lambda number=number: len(done) == number + 1)
    await asyncio.gather(*tasks)


@pytest.mark.parametrize("text", [BUCKET, WINDOW])
def test_a_cancelled_task_leaves_nothing_charged(home, text):
    """In its sleep, in line or on the way: as if it had never come, and those behind it still go.

    Of those on their way to a server nobody knows yet who is the last: what is not the last there may stay charged.
    """
    clock = ManualClock(LATER)

    async def story(store: Store) -> None:
        limiter = AsyncLimiter(text, store=store, on_error="raise")
        await limiter.hit("k", 4)
        before = await limiter.peek("k", 0)
        for turns in (0, 1, 2, 3, 5, 10):
            tasks = [asyncio.create_task(limiter.acquire("k", cost)) for cost in (2, 1, 4)]
            await let_run(turns)
            for task in tasks:
                task.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
            assert [type(end) for end in ends] == [asyncio.CancelledError] * 3
        await until(lambda: not still_busy())
        after = await limiter.peek("k", 0)
        if home.kind == "redis" and text == BUCKET:
            assert before.reset_us <= after.reset_us <= before.reset_us + 6 * 7 * 100_000
        else:
            assert after.verdicts == before.verdicts
        assert nobody_waits(limiter)

    home.tell(story, clock)


def still_busy() -> bool:
    """Whether something is still being given back."""
    return bool(steps.unfinished)


@in_each_home
async def test_a_wait_longer_than_the_timeout_is_refused_at_once(store, clock):
    """Nobody waits in vain, and nothing is charged; what somebody else would cancel is given back."""
    for text in (BUCKET, WINDOW):
        limiter = AsyncLimiter(text, store=store, on_error="raise")
        await limiter.hit("k", 4)
        before = (await limiter.peek("k", 0)).verdicts
        refused = await limiter.acquire("k", 4, timeout=0.39)
        assert (bool(refused), refused.retry_after >= 0.4, in_line(limiter)) == (False, True, 0)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await limiter.acquire("k", 4)
        await until(lambda: not still_busy())
        assert (await limiter.peek("k", 0)).verdicts == before


@in_each_home
async def test_what_takes_more_than_an_hour_is_charged_when_an_hour_is_left(store, clock):
    """From then on it is promised, and nobody can take it."""
    limiter = AsyncLimiter("2/3 hours burst 2", store=store, on_error="raise")
    await limiter.hit("k", 2)
    waiter = asyncio.create_task(limiter.acquire("k", 2))
    await waiting(limiter, 1)
    clock.advance(2 * 3600 - 1)
    await let_run()
    assert (await limiter.peek("k", 0)).reset_after == 3601
    clock.advance(1)
    await waiting(limiter, 1)
    await let_run()
    assert (await limiter.peek("k", 0)).reset_after == 4 * 3600
    await waiting(limiter, 1)
    clock.advance(3600)
    assert await waiter


@in_each_home
async def test_a_slot_is_awaited(store, clock):
    """`async with` waits, hands over the decision, and raises a refusal."""
    limiter = AsyncLimiter("2/second", store=store, on_error="raise")
    async with limiter.permit("k", 2, timeout=None) as permit:
        assert permit.decision.remaining == 0
    with pytest.raises(RateLimited):
        async with limiter.permit("k", timeout=0.49):
            pytest.fail("the body must not run")
    with pytest.raises(RateLimited):
        async with limiter.permit("k", 3, timeout=None):
            pytest.fail("the body must not run")
    entering = asyncio.create_task(limiter.permit("k", timeout=0.5).__aenter__())
    await waiting(limiter, 1)
    clock.advance(0.5)
    assert (await entering).decision.retry_after == 0.5


@in_each_home
async def test_no_more_wait_than_may(store, clock):
    """A further caller is refused at once, and nothing was charged; when one has gone there is room again."""
    for text, full in ((BUCKET, 0.1), (WINDOW, 1)):
        limiter = AsyncLimiter(text, store=store, on_error="raise", max_waiting=3)
        await limiter.hit("k", 4)
        inside = []
        for place in range(3):
            inside.append(asyncio.create_task(limiter.acquire("k")))
            await waiting(limiter, place + 1)
        before = (await limiter.peek("k", 0)).verdicts
        assert not any([await limiter.acquire(key) for key in ("k", "k")])
        assert (await limiter.peek("k", 0)).verdicts == before
        assert await limiter.acquire("other")
        clock.advance(full)
        await inside[0]
        await until(lambda limiter=limiter: in_line(limiter) < 3)
        inside[0] = asyncio.create_task(limiter.acquire("k"))
        while not all(each.done() for each in inside):
            await let_run()
            clock.advance(0.5)
        assert all(await asyncio.gather(*inside))


@in_each_home
async def test_no_more_wait_than_may_of_those_who_come_at_once(store, clock):
    """A hundred at one time, where five may wait: four pass, five wait, the others are refused and charge nothing."""
    for text in (BUCKET, WINDOW):
        limiter = AsyncLimiter(text, store=store, on_error="raise", max_waiting=5)
        tasks = [asyncio.create_task(limiter.acquire("k")) for _ in range(100)]
        line = queue_of(limiter)
        await until(lambda tasks=tasks, line=line: sum(task.done() for task in tasks) >= 95 or line.waiting > 5)
        assert line.waiting == 5
        answers = [task.result().allowed for task in tasks if task.done()]
        assert (sum(answers), len(answers)) == (4, 95)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("seed", range(3))
def test_ten_thousand_tasks_cancelled_at_random_leave_the_books_exact(home, seed):
    """A thousand tasks are enough where a server or a file is behind it; `make soak` has ten thousand there too."""
    clock = ManualClock(LATER)
    tasks = 10_000 if (home.kind, seed) == ("memory", 0) else 1_000

    async def story(store: Store) -> None:
        await cancel_at_random(store, clock, tasks, random.Random(seed))

    home.tell(story, clock)


@awaited
async def test_any_number_of_tasks_have_one_timer():
    """The timer of the real clock is set for the first task, moved when an earlier one comes, gone with the last."""
    limiter = AsyncLimiter("1/minute burst 1")
    await limiter.hit("k")
    alarm = timers_of(limiter)
    assert alarm.timers == 0
    scheduled = asyncio.get_running_loop()._scheduled
    before = list(scheduled)
    tasks = [asyncio.create_task(limiter.acquire("k")) for _ in range(50)]
    await waiting(limiter, 50)
    assert alarm.timers == 1
    assert len([handle for handle in scheduled if handle not in before and not handle.cancelled()]) == 1
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@in_each_home
async def test_nobody_goes_early_by_the_real_clock(store):
    """Thirty tasks in 60 ms: each at its instant or after it, and no two in the time of one."""
    limiter = AsyncLimiter("500/second burst 1", store=store, on_error="raise")
    clock, gone = store.clock, []
    start = clock.now_us()

    async def one() -> None:
        decision = await limiter.acquire("k")
        gone.append((clock.now_us() - start, decision.retry_us))

    await asyncio.gather(*(one() for _ in range(30)))
    assert all(at >= delay for at, delay in gone)
    assert all(at >= 2_000 * place for place, (at, _) in enumerate(gone))
    assert timers_of(limiter).timers == 0


@in_each_home
async def test_a_pause_after_the_question_changes_no_order(store, clock):
    """The first caller goes first, though it was held up for 50 ms between the answer and its sleep."""
    limiter = AsyncLimiter("100/second burst 1", store=store, on_error="raise")
    for _ in range(10):
        await limiter._reserve("k", 1, 10**9, None)
    finish, done = queue_of(limiter)._depart, []

    def held_up(*given):
        clock.advance(0.05)
        return finish(*given)

    async def one(number: int) -> None:
        assert await limiter.acquire("k")
        done.append(number)

    queue_of(limiter)._depart = held_up  # type: ignore[method-assign]
    tasks = [asyncio.create_task(one(0))]
    await waiting(limiter, 1)
    queue_of(limiter)._depart = finish  # type: ignore[method-assign]
    tasks.append(asyncio.create_task(one(1)))
    await waiting(limiter, 2)
    while len(done) < 2:
        await let_run(100)
        clock.advance(0.005)
    assert done == [0, 1]
    await asyncio.gather(*tasks)


@pytest.mark.parametrize("told", [False, True], ids=["before the timer rings", "as the timer rings"])
@pytest.mark.parametrize("timeout", [None, 60])
@in_each_home
async def test_who_comes_after_a_stall_does_not_pass_who_waited(store, clock, told, timeout):
    """Time went on while nothing ran: the waiting callers are late, there is room for more, and still they go first."""
    limiter = AsyncLimiter("1/second burst 2", store=store, on_error="raise")
    await limiter.hit("k", 2)
    done: list[int] = []

    async def one(number: int) -> None:
        assert await limiter.acquire("k", timeout=timeout)
        done.append(number)

    tasks = []
    for number in range(3):
        tasks.append(asyncio.create_task(one(number)))
        await waiting(limiter, number + 1, asleep=number + 1)
    clock.us += 8_000_000
    if told:
        clock.advance(0)
    tasks += [asyncio.create_task(one(number)) for number in (3, 4)]
    await let_run()
    clock.advance(0)
    await asyncio.gather(*tasks)
    assert done == [0, 1, 2, 3, 4]
    assert in_line(limiter) == 0


@awaited
async def test_who_is_cancelled_while_others_go_first_leaves_nothing_charged():
    """It would be admitted at once, but the callers that waited before it are late and go first."""
    clock = ManualClock(LATER)
    limiter = AsyncLimiter("1/second burst 2", clock=clock)
    await limiter.hit("k", 2)
    first = asyncio.create_task(limiter.acquire("k"))
    await waiting(limiter, 1)
    clock.us += 8_000_000
    before = (await limiter.peek("k", 0)).remaining
    second = asyncio.create_task(limiter.acquire("k", timeout=9))
    await asyncio.sleep(0)
    second.cancel()
    clock.advance(0)
    await asyncio.gather(first, second, return_exceptions=True)
    assert (first.done(), second.cancelled()) == (True, True)
    assert ((await limiter.peek("k", 0)).remaining, in_line(limiter)) == (before, 0)
