"""Callers that wait for permits and are cancelled or fail: the turn passes on, and the counts stay exact."""

from __future__ import annotations

import asyncio
import random
import threading
from typing import Any

import pytest

from headgate import AsyncLimiter, steps
from headgate.stores import Store
from tests.limiter.in_flight.test_permits_waiting import Thread, take
from tests.support.flight import Asks, held
from tests.support.homes import (
    PATIENCE,
    home_of,
    in_each_home,
    in_line,
    let_run,
    nobody_waits,
    until,
)
from tests.support.inside import renewal_of


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt()])
def test_a_thread_that_fails_in_line_passes_the_turn_on(home, error):
    """Whatever its question comes to: it leaves, and the next one is called."""
    limiter = home.limiter("1 in flight")
    permit = limiter.permit("k")
    asks = Asks(limiter)
    head = Thread(limiter)
    behind = Thread(limiter)
    asks.fail = lambda: error if threading.current_thread() is head else None
    head.join(PATIENCE)
    assert head.error is error
    assert in_line(limiter) == 1
    permit.release()
    assert behind.answer() and nobody_waits(limiter) and held(limiter) == 1


@in_each_home
async def test_a_cancelled_head_passes_the_turn_on(store, clock):
    """It wanted more than was free; the caller behind it fits, and goes at once."""
    limiter = AsyncLimiter("2 in flight", store=store, on_error="raise")
    await limiter.permit("k")
    large, small = asyncio.create_task(take(limiter, 2)), asyncio.create_task(take(limiter))
    await until(lambda: in_line(limiter) == 2)
    await let_run()
    large.cancel()
    assert await small
    assert nobody_waits(limiter)


@in_each_home
async def test_a_task_that_is_cancelled_as_it_is_called_passes_the_turn_on(store):
    """The release and the cancellation at one time, in either order: the next one gets it, and only it."""
    limiter = AsyncLimiter("1 in flight", store=store, on_error="raise")
    for turns in range(10):
        permit = await limiter.permit("k", timeout=1)
        one, two = asyncio.create_task(take(limiter)), asyncio.create_task(take(limiter))
        await until(lambda: in_line(limiter) == 2)
        await let_run()
        ending = asyncio.create_task(permit.release())
        for _ in range(turns):
            await asyncio.sleep(0)
        one.cancel()
        await asyncio.wait([one, ending])
        if not one.cancelled():  # it was too late: it has the permit
            await one.result().release()
        await (await two).release()
        await until(lambda: not steps.unfinished)
        assert nobody_waits(limiter) and (await limiter.peek("k", 0)).remaining == 1


@pytest.mark.parametrize(("kind", "count"), [("memory", 10_000), ("shared", 1_000), ("redis", 1_000)])
def test_cancelled_waiters_leave_the_books_exact(kind, count):
    """Cancelled in any order and at any time, while permits come and go: nobody waits, and nothing is held."""
    chance = random.Random(9)

    async def story(store: Store) -> None:
        limiter = AsyncLimiter("5 in flight", store=store, on_error="raise", max_waiting=count)
        first = [await limiter.permit("k") for _ in range(5)]
        tasks = [asyncio.create_task(take(limiter, chance.choice((1, 1, 2, 5)))) for _ in range(count)]
        for task in chance.sample(tasks, count // 10):  # on their way, where there is one
            await let_run(1)
            task.cancel()
        await until(lambda: in_line(limiter) == sum(not task.done() for task in tasks))
        for permit in first:
            await permit.release()
        await until(lambda: any(task.done() and not task.cancelled() for task in tasks))
        order = chance.sample(tasks, count)
        for number, task in enumerate(order):
            task.cancel()
            if number % 50 == 0:
                await let_run(2)
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        got: list[Any] = [end for end in ends if not isinstance(end, asyncio.CancelledError)]
        assert 0 < len(got) <= 5 and all(got)
        await until(lambda: not steps.unfinished)
        assert nobody_waits(limiter)
        assert (await limiter.peek("k", 0)).remaining == 5 - sum(permit.decision.granted for permit in got)
        assert all([await permit.release() for permit in got])
        assert (await limiter.peek("k", 0)).remaining == 5
        assert await limiter.holders("k") == []
        assert kind != "redis" or renewal_of(store).held == {}

    with home_of(kind) as home:
        home.tell(story)
