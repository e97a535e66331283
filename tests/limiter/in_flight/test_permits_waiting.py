"""Waiting for what is in flight: first come, first served in a process, woken by releases, and nothing stays."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from headgate import AsyncLimiter, Limiter, RateLimited
from headgate.testing import ManualClock
from tests.support.flight import held
from tests.support.homes import (
    LATER,
    PATIENCE,
    eventually,
    in_each_home,
    in_line,
    let_run,
    nobody_waits,
    until,
)


class Thread(threading.Thread):
    """Takes a permit, and keeps it; started, it waits in line."""

    def __init__(self, limiter: Limiter, cost: Any = 1, timeout: float | None = PATIENCE, key: str = "k") -> None:
        super().__init__(daemon=True)
        self._limiter, self._asked = limiter, (key, cost, timeout)
        self.permit: Any = None
        self.error: BaseException | None = None
        ahead = in_line(limiter)
        self.start()
        eventually(lambda: in_line(limiter) == ahead + 1 or not self.is_alive())

    def run(self) -> None:
        try:
            self.permit = self._limiter.permit(*self._asked)
        except BaseException as error:
            self.error = error

    def answer(self) -> bool:
        self.join(PATIENCE)
        assert not self.is_alive(), "it waits for ever"
        return bool(self.permit)


@pytest.mark.usefixtures("rung")
def test_threads_are_served_in_the_order_they_came(home):
    """Each release calls the head at once; a head that does not fit yet keeps the callers behind it waiting."""
    limiter = home.limiter("3 in flight")
    first = [limiter.permit("k"), limiter.permit("k", 2)]
    a, b, c, d = (Thread(limiter, cost) for cost in (2, 3, 1, 1))
    first[0].release()
    assert held(limiter) == 2  # one is free, and `a` wants two: nobody goes
    assert not limiter.permit("k") and not limiter.permit("k", timeout=0.0)
    first[1].release()
    assert a.answer() and held(limiter) == 2
    assert [thread.is_alive() for thread in (b, c, d)] == [True] * 3  # one is free for `c`, and `b` came first
    a.permit.release()
    assert b.answer() and held(limiter) == 3
    b.permit.release()
    assert c.answer() and d.answer() and held(limiter) == 2
    c.permit.release()
    d.permit.release()
    assert nobody_waits(limiter) and held(limiter) == 0


@pytest.mark.usefixtures("rung")
def test_many_threads_pass_one_permit_on_in_the_order_they_came(home):
    """Two threads never have the permit at once, and no thread is forgotten."""
    limiter = home.limiter("1 in flight")
    permit = limiter.permit("k")
    order: list[int] = []
    inside: list[int] = []

    def turn(number: int) -> None:
        with limiter.permit("k", timeout=PATIENCE):
            inside.append(number)
            order.append(number)
            assert inside == [number]
            inside.clear()

    threads = []
    for number in range(20):
        threads.append(threading.Thread(target=turn, args=(number,), daemon=True))
        threads[-1].start()
        eventually(lambda: in_line(limiter) == len(threads))
    permit.release()
    for thread in threads:
        thread.join(PATIENCE)
    assert order == list(range(20))
    assert nobody_waits(limiter) and held(limiter) == 0


@in_each_home
async def test_tasks_are_served_in_the_order_they_came(store, clock):
    """The clock stands still: only releases move the line."""
    limiter = AsyncLimiter("3 in flight", store=store, on_error="raise")
    first = [await limiter.permit("k"), await limiter.permit("k", 2)]
    tasks = []
    for cost in (2, 3, 1, 1):
        tasks.append(asyncio.create_task(take(limiter, cost)))
        await until(lambda: in_line(limiter) == len(tasks))
    await first[0].release()
    await let_run()
    assert not any(task.done() for task in tasks) and not await limiter.permit("k")
    await first[1].release()
    a = await tasks[0]
    await let_run()
    assert [task.done() for task in tasks] == [True, False, False, False]
    await a.release()
    b = await tasks[1]
    await b.release()
    for task in tasks[2:]:
        await (await task).release()
    assert nobody_waits(limiter) and (await limiter.peek("k", 0)).remaining == 3


async def take(limiter: AsyncLimiter, cost: int = 1, timeout: float | None = None, key: str = "k") -> Any:
    return await limiter.permit(key, cost, timeout)


def test_a_thread_that_waits_in_vain_is_refused_in_time_and_leaves_nothing(home):
    """As head of the line and behind it; acquire, a slot and a permit alike."""
    limiter = home.limiter("2 in flight")
    permit = limiter.permit("k", 2)
    start = time.monotonic()
    behind = Thread(limiter, 2, timeout=0.06)
    assert not limiter.acquire("k", timeout=0.03)
    with pytest.raises(RateLimited, match="retry when a permit is released"), limiter.permit("k", timeout=0.01):
        pytest.fail("the body must not run")
    assert not behind.answer() and behind.permit.decision.unknown
    assert 0.06 <= time.monotonic() - start < PATIENCE
    assert nobody_waits(limiter) and held(limiter) == 2
    permit.release()
    assert limiter.permit("k", 2)


def test_a_thread_waits_in_vain_by_a_clock_that_nobody_moves():
    """A frozen limiter in somebody's test: the wait takes as long as it was to take, and not for ever."""
    clock = ManualClock(LATER)
    limiter = Limiter("1 in flight", clock=clock)
    limiter.permit("k")
    head = Thread(limiter, timeout=0.05)
    behind = Thread(limiter, timeout=0.05)
    assert not head.answer() and not behind.answer()
    assert (clock.now(), nobody_waits(limiter)) == (LATER, True)


@in_each_home
async def test_a_task_that_waits_in_vain_is_refused_at_its_instant(store, clock):
    """The refusal does not come a microsecond before, and the task leaves nothing behind."""
    limiter = AsyncLimiter("1 in flight", store=store, on_error="raise")
    permit = await limiter.permit("k")
    tasks = [asyncio.create_task(take(limiter, timeout=0.004)), asyncio.create_task(take(limiter, timeout=1))]
    await until(lambda: in_line(limiter) == 2)
    await let_run()
    clock.advance(0.003999)
    await let_run()
    assert in_line(limiter) == 2
    clock.advance(0.000001)
    assert not await tasks[0]
    await until(lambda: in_line(limiter) == 1)
    await let_run()
    clock.advance(0.995999)
    await let_run()
    assert not tasks[1].done()
    clock.advance(0.000001)
    refused = await tasks[1]
    assert (bool(refused), refused.decision.unknown) == (False, True)
    assert nobody_waits(limiter)
    await permit.release()
    assert await limiter.permit("k")


def test_who_would_not_wait_does_not_overtake_who_does(home):
    """One is free, and somebody waits for two: a permit without a wait is refused, a hit is not in anybody's line."""
    limiter = home.limiter("2 in flight as now")
    permit = limiter.permit("k")
    large = Thread(limiter, 2)
    for cost in (1, {"now": 1}):
        for timeout in (0, 0.02):
            refused = limiter.permit("k", cost, timeout)
            assert (bool(refused), refused.decision.unknown, refused.decision.granted) == (False, True, 0)
    assert not limiter.acquire("k", timeout=0)
    assert limiter.permit("other", 2)
    hit = limiter.hit("k")
    assert hit
    limiter.release(hit)
    permit.release()
    assert large.answer()


def test_what_can_never_fit_is_refused_at_once(home):
    """Without standing in line, and also where others do."""
    limiter = home.limiter("2 in flight")
    permit = limiter.permit("k", 2)
    waits = Thread(limiter)
    for timeout in (0, 5, None):
        refused = limiter.permit("k", 3, timeout)
        assert (bool(refused), refused.decision.never) == (False, True)
    assert in_line(limiter) == 1
    permit.release()
    assert waits.answer()


@pytest.mark.parametrize("most", [0, 1])
def test_no_more_may_wait_than_agreed(home, most):
    """A request beyond `max_waiting` is refused at once, whatever its timeout."""
    limiter = home.limiter("1 in flight", max_waiting=most)
    permit = limiter.permit("k")
    waits = [Thread(limiter) for _ in range(most)]
    start = time.monotonic()
    for timeout in (0, 5, None):
        refused = limiter.permit("k", timeout=timeout)
        assert (bool(refused), refused.decision.unknown) == (False, True)
    assert not limiter.permit("k", timeout=60) and time.monotonic() - start < PATIENCE
    permit.release()
    assert all(thread.answer() for thread in waits)
    assert held(limiter) == most
