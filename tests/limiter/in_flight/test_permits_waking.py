"""Waiters for permits are woken: by a release, by another limiter, by a look, from another loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from headgate import AsyncLimiter, Limiter
from headgate.stores import Store
from headgate.testing import ManualClock
from tests.limiter.in_flight.test_permits_waiting import Thread, take
from tests.support.awaiting import awaited
from tests.support.flight import Asks, forks, held, in_child
from tests.support.homes import (
    LATER,
    PATIENCE,
    in_each_home,
    in_line,
    let_run,
    nobody_waits,
    until,
    waiting,
)
from tests.support.inside import queue_of


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
