"""Timers: however many callers wait, one timer, no early wake-up, and no memory of callers that have gone."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
import weakref
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from headgate import AsyncLimiter, Limiter
from headgate.clock import SystemClock
from headgate.testing import ManualClock
from headgate.waiting.sleep import sleep_until
from headgate.waiting.timers import LoopTimers, Timers
from tests.support.awaiting import awaited
from tests.support.homes import LATER, eventually, in_line, let_run
from tests.support.inside import entries, is_watched, loops_known, timers_of

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    """In an event loop of its own, and not for ever."""

    async def main() -> T:
        async with asyncio.timeout(20):
            return await work

    return asyncio.run(main())


def alarm(clock=None) -> LoopTimers:
    return LoopTimers(asyncio.get_running_loop(), clock or SystemClock())


@awaited
async def test_waiters_wake_in_the_order_of_their_instants():
    """Waiters of one instant wake in the order of their arrival."""
    clock, woken = ManualClock(LATER), []
    timers = alarm(clock)

    async def one(name: str, at: int) -> None:
        await timers.wait_until(clock.us + at)
        woken.append(name)

    tasks = [asyncio.create_task(one(*each)) for each in (("c", 3), ("a", 1), ("b", 2), ("b2", 2), ("d", 9))]
    await let_run()
    clock.advance(5e-6)
    await let_run()
    assert woken == ["a", "b", "b2", "c"]
    clock.advance(4e-6)
    await asyncio.gather(*tasks)
    assert woken[-1] == "d"


@awaited
async def test_a_waiter_that_comes_late_does_not_pass_one_of_the_same_instant(clock):
    """The instant has passed, and the event loop has not woken the first waiter yet."""
    timers, at, woken = alarm(clock), clock.us + 5, []

    async def one(name: str) -> None:
        await timers.wait_until(at)
        woken.append(name)

    first = asyncio.create_task(one("first"))
    await let_run()
    clock.advance(5e-6)
    await one("second")
    await first
    assert woken == ["first", "second"]


@awaited
async def test_of_equal_instants_the_last_promise_is_freed(clock):
    """A store can take back only the charge that came last."""
    turns = alarm(clock).turns("k")
    callers = [turns.enter(clock.us + 5, promise) for promise in ("first", "second", "third")]
    assert [turns.leave(caller) for caller in callers] == ["third", "second", "first"]


@awaited
async def test_an_instant_that_has_come_is_not_waited_for(clock):
    """A wait for the present or the past sets no timer, by either clock."""
    timers = alarm()
    await timers.wait_until(SystemClock().now_us())
    assert timers.timers == 0
    by_hand = alarm(clock)
    await by_hand.wait_until(clock.us)
    future = asyncio.get_running_loop().create_future()
    assert await asyncio.wait_for(by_hand.wait_for(future, clock.us), 5) is False


@awaited
async def test_nobody_wakes_early_though_the_timer_does():
    """An event loop may call a little early, and a clock may run slower than the loop's: a woken caller looks again."""

    class Slow(SystemClock):
        def now_us(self) -> int:
            return super().now_us() // 4

    clock = Slow()
    timers = alarm(clock)
    at = clock.now_us() + 5_000
    await timers.wait_until(at)
    assert clock.now_us() >= at
    assert timers.timers == 0


@awaited
async def test_the_timer_is_set_for_the_first_of_a_thousand():
    """One handle in the loop, whatever order they come in."""
    timers, clock = alarm(), SystemClock()
    loop, base = asyncio.get_running_loop(), clock.now_us()
    chance = random.Random(5)
    instants = [base + chance.randrange(10**9, 2 * 10**9) for _ in range(1000)]
    tasks = [asyncio.create_task(timers.wait_until(at)) for at in instants]
    await let_run(3)
    live = [each for each in loop._scheduled if each._callback == timers._timer_fired and not each.cancelled()]
    assert (timers.timers, len(live)) == (1, 1)
    assert abs(live[0].when() - loop.time() - (min(instants) - clock.now_us()) / 1e6) < 1
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert timers.timers <= 1


@awaited
async def test_those_who_left_are_forgotten(clock):
    """A hundred thousand callers that give up, one by one or all at once, leave a handful of entries behind."""
    timers = alarm(clock)
    for crowd in (1, 10, 1000, 9):
        for _ in range(10_000 // crowd):
            tasks = [asyncio.create_task(timers.wait_until(clock.us + 10**9)) for _ in range(crowd)]
            await asyncio.sleep(0)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        assert entries(timers) <= 200


@awaited
async def test_those_who_leave_as_their_time_comes_are_counted_once(clock):
    """Cancelled when the instant is over and before anybody was woken: later leavers are forgotten all the same."""
    timers = alarm(clock)
    for _ in range(20):
        tasks = [asyncio.create_task(timers.wait_until(clock.us + 1)) for _ in range(500)]
        await let_run(2)
        clock.advance(1)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await let_run(2)
    for _ in range(2_000):
        task = asyncio.create_task(timers.wait_until(clock.us + 10**9))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert entries(timers) <= 200


@awaited
async def test_a_future_may_come_first(clock):
    """`wait_for`: the future's own result, or False at the instant."""
    timers, loop = alarm(clock), asyncio.get_running_loop()
    early, late = loop.create_future(), loop.create_future()
    first = asyncio.create_task(timers.wait_for(early, clock.us + 5))
    second = asyncio.create_task(timers.wait_for(late, clock.us + 5))
    await let_run()
    early.set_result(True)
    await let_run()
    assert (first.done(), second.done()) == (True, False)
    clock.advance(5e-6)
    assert (await first, await second) == (True, False)


def test_loops_one_after_the_other_each_have_their_alarm():
    """A limiter outlives the event loops it is used in; what belongs to a closed one is let go."""
    limiter = AsyncLimiter("200/second burst 1")
    timers = []

    async def main() -> None:
        await limiter.acquire("k")
        await limiter.acquire("k")
        timers.append(weakref.ref(timers_of(limiter)))

    for _ in range(4):
        run(main())
        gc.collect()
    assert [one() is None for one in timers] == [True, True, True, False]


@pytest.mark.parametrize(("text", "step"), [("2/second burst 1", 0.5), ("1/second by fixed-window", 1.0)])
def test_loops_side_by_side_wake_their_own(text, step, clock):
    """Six threads, six event loops, one limiter and one clock that a seventh moves; the line is one line."""
    limiter = AsyncLimiter(text, clock=clock)
    gone: list[int] = []

    async def one(number: int) -> None:
        assert await limiter.acquire("k")
        gone.append(number)

    threads = []
    for number in range(6):
        threads.append(threading.Thread(target=asyncio.run, args=(one(number),), daemon=True))
        threads[-1].start()
        eventually(lambda number=number: in_line(limiter) + len(gone) == number + 1)
    for number in range(1, 6):
        clock.advance(step)
        eventually(lambda number=number: len(gone) > number)
    for thread in threads:
        thread.join(10)
    assert gone == list(range(6))


def test_the_alarms_of_a_clock_are_one_for_each_loop():
    """A loop always gets the same timers, and those of a loop that has ended are forgotten."""
    timers = Timers(SystemClock())

    async def main() -> LoopTimers:
        assert timers.here() is timers.here()
        return timers.here()

    one, other = run(main()), run(main())
    assert one is not other
    assert loops_known(timers) == 1


def test_a_clock_forgets_alarms_that_are_gone(clock):
    """An alarm that watches a clock that is moved by hand does not keep the clock, nor itself, alive."""

    async def main() -> None:
        await AsyncLimiter("1/second", clock=clock).hit("k")
        limiter = AsyncLimiter("1/second", clock=clock)
        timers_of(limiter)

    for _ in range(5):
        run(main())
    gc.collect()
    clock.advance(1)
    assert not is_watched(clock)


def test_a_thread_sleeps_until_and_not_before():
    """A sleep ends at its instant by the real clock, and by one that a test moves."""
    clock = SystemClock()
    at = clock.now_us() + 3_000
    sleep_until(clock, at)
    assert clock.now_us() >= at
    sleep_until(clock, at - 10_000_000)
    moved = ManualClock(LATER)
    sleep_until(moved, moved.us + 7)
    sleep_until(moved, moved.us - 7)
    assert moved.us == round(LATER * 1e6) + 7


def test_a_thread_that_sleeps_too_little_sleeps_again():
    """Anything may wake a thread; it goes on when the clock says so."""

    class Slow(SystemClock):
        def now_us(self) -> int:
            return super().now_us() // 3

    clock = Slow()
    limiter = Limiter("200/second burst 1", clock=clock)
    limiter.hit("k")
    start = clock.now_us()
    assert limiter.acquire("k")
    assert clock.now_us() - start >= 4_900
