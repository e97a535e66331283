"""Waiting for what is in flight: first come, first served in a process, woken by releases, and nothing stays."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from headgate import AsyncLimiter, Limiter, RateLimited
from headgate.limiter import wait_queue
from headgate.stores import Store
from headgate.testing import ManualClock
from tests.support.awaiting import awaited
from tests.support.flight import Asks, forks, held, in_child
from tests.support.homes import (
    LATER,
    PATIENCE,
    eventually,
    in_each_home,
    in_line,
    let_run,
    nobody_waits,
    until,
    waiting,
)
from tests.support.inside import queue_of

NEVER_BY_ITSELF = 3_600_000_000
"""An interval after which no look happens in a test."""


@pytest.fixture
def rung(monkeypatch) -> None:
    """Who waits does not look by itself: only a release, or who leaves the line, can call it."""
    monkeypatch.setattr(wait_queue, "FIRST_LOOK", NEVER_BY_ITSELF)
    monkeypatch.setattr(wait_queue, "LAST_LOOK", NEVER_BY_ITSELF)


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


@pytest.mark.usefixtures("rung")
@pytest.mark.parametrize("end", ["release", "exit", "refund", "part"])
def test_whatever_gives_back_calls_the_head_at_once(home, end):
    """A release, a block that is left, a refund, or part of one; also in an event loop."""
    limiter = home.limiter("2 in flight")
    permit = limiter.permit("k", 2)
    head = Thread(limiter, 1)
    endings: dict[str, Callable[[], object]] = {
        "release": lambda: limiter.release(permit.decision),
        "exit": lambda: permit.__exit__(None, None, None),
        "refund": lambda: limiter.refund(permit.decision),
        "part": lambda: limiter.refund(permit.decision, 1),
    }
    endings[end]()
    assert head.answer()
    assert held(limiter) == (2 if end == "part" else 1)

    async def story(store: Store) -> None:
        awaited = AsyncLimiter("2 in flight", store=store, on_error="raise", namespace="awaited")
        permit = await awaited.permit("k", 2)
        head = asyncio.create_task(take(awaited))
        await until(lambda: in_line(awaited) == 1)
        await let_run()
        if end == "exit":
            await permit.__aexit__(None, None, None)
        elif end == "release":
            await awaited.release(permit.decision)
        else:
            await awaited.refund(permit.decision, 1 if end == "part" else None)
        assert await head

    home.tell(story)


def test_what_another_limiter_releases_is_noticed(home):
    """Of the same process or of another one: nobody rings then, so the head of a line looks by itself."""
    store = home.store()
    one, other = (
        Limiter("1 in flight", store=store if home.kind == "memory" else home.store(), on_error="raise")
        for _ in range(2)
    )
    permit = other.permit("k")
    head = Thread(one)
    permit.release()
    assert head.answer() and held(other) == 1
    head.permit.release()


@awaited
async def test_the_head_looks_less_and_less_often():
    """Soon at first, then ten times a second, and never without letting others run."""
    clock = ManualClock(LATER)
    limiter = AsyncLimiter("1 in flight", clock=clock)
    asks = Asks(limiter, clock)
    permit = await limiter.permit("k")
    waits = asyncio.create_task(take(limiter))
    for _ in range(600):
        await let_run(4)
        clock.advance(0.001)
    start = round(LATER * 1e6)
    assert [(at - start) // 1000 for at in asks.at] == [0, 0, 5, 15, 35, 75, 155, 255, 355, 455, 555]
    await permit.release()
    assert await waits


@in_each_home
async def test_a_rate_and_what_is_in_flight_are_waited_for_together(store, clock):
    """Called when somebody has ended, it is still too early for the rate: it sleeps for that, and charges both once."""
    limiter = AsyncLimiter("2/second burst 2 as rate; 1 in flight as now", store=store, on_error="raise")
    permit = await limiter.permit("k", {"rate": 2, "now": 1})
    waits = asyncio.create_task(take(limiter))
    await waiting(limiter, 1)
    await permit.release()
    await waiting(limiter, 1)
    clock.advance(0.499999)
    await let_run()
    assert not waits.done()
    clock.advance(0.000001)
    second = await waits
    assert [verdict.remaining for verdict in second.decision.verdicts] == [0, 0]
    assert nobody_waits(limiter)
    # The other way round: the rate has long been ready, and somebody is in flight.
    waits = asyncio.create_task(take(limiter))
    await until(lambda: in_line(limiter) == 1)
    await let_run()
    clock.advance(5)
    await let_run()
    assert not waits.done()
    seen = await limiter.peek("k", 0)
    assert [verdict.remaining for verdict in seen.verdicts] == [2, 0]
    await second.release()
    assert [verdict.remaining for verdict in (await waits).decision.verdicts] == [1, 0]


@pytest.mark.usefixtures("rung")
def test_a_release_in_one_event_loop_calls_who_waits_in_another(home):
    """One limiter, two threads, each with a loop of its own."""
    limiter = AsyncLimiter("1 in flight", store=home.store(), on_error="raise")
    taken, waits, ended = threading.Event(), threading.Event(), threading.Event()

    async def hold() -> None:
        async with limiter.permit("k"):
            taken.set()
            await asyncio.to_thread(waits.wait, PATIENCE)
        ended.set()
        await close_here(limiter.store)

    async def wait() -> bool:
        task = asyncio.create_task(take(limiter))
        await until(lambda: in_line(limiter) == 1)
        await let_run()
        waits.set()
        async with asyncio.timeout(PATIENCE):
            permit = await task
        assert ended.wait(PATIENCE)
        await permit.release()
        await close_here(limiter.store)
        return bool(permit)

    holder = threading.Thread(target=asyncio.run, args=(hold(),), daemon=True)
    holder.start()
    assert taken.wait(PATIENCE)
    assert asyncio.run(wait())
    holder.join(PATIENCE)
    assert nobody_waits(limiter) and not holder.is_alive()


async def close_here(store: Any) -> None:
    """Of this event loop only: others use the store too."""
    pipelines = getattr(store, "_pipelines", {}).pop(id(asyncio.get_running_loop()), None)
    if pipelines is not None:
        await pipelines.close()


@forks
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_nobody_waits_in_a_forked_child(home):
    """Those in line stayed with the parent: a child neither stands behind them nor is refused because of them."""
    limiter = home.limiter("2 in flight")
    permit = limiter.permit("k")
    waits = Thread(limiter, 2)

    def ask() -> tuple[object, ...]:
        taken = limiter.permit("k", timeout=5)
        taken.release()
        return bool(taken), bool(limiter.permit("k")), in_line(limiter), queue_of(limiter).by_key

    assert in_child(ask) == repr((True, True, 0, {}))
    assert in_line(limiter) == 1
    permit.release()
    if home.kind == "redis":
        limiter.reset("k")  # what the child left behind has a lease
    assert waits.answer()
