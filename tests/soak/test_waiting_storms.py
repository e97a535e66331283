"""Long storms of waiting callers: cancelled by the ten thousand, killed in their sleep; the counts stay exact."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from multiprocessing import get_context
from multiprocessing.sharedctypes import SynchronizedArray
from typing import Any

import pytest

from headgate import AsyncLimiter, AsyncShaper, Limiter
from headgate.stores import Store
from headgate.testing import ManualClock
from tests.support import soaking
from tests.support.homes import EVERY_HOME, LATER, Home, cancel_at_random, home_of, let_run, nobody_waits

pytestmark = pytest.mark.soak

SECONDS = soaking.SECONDS / 12
"""For each home of each storm."""


@pytest.fixture(params=EVERY_HOME)
def home(request) -> Iterator[Home]:
    with home_of(request.param) as home:
        yield home


def until_time_is_up() -> Iterator[int]:
    """Fresh seeds every time; a failure names its seed."""
    end = time.monotonic() + SECONDS
    seed = soaking.fresh_seed()
    while True:
        yield seed
        seed += 1
        if time.monotonic() >= end:
            return


def test_ten_thousand_tasks_cancelled_at_random(home):
    """On a server and on files too."""
    for seed in until_time_is_up():
        with home_of(home.kind) as fresh:
            clock = ManualClock(LATER)

            async def story(store: Store, clock: ManualClock = clock, seed: int = seed) -> None:
                await cancel_at_random(store, clock, 10_000, random.Random(seed))

            print("seed", seed)
            fresh.tell(story, clock, patience=120)


def test_lines_of_tasks_that_come_and_go(home):
    """Windows: tasks of any cost and patience; nobody passes, and a window never admits one too many."""
    for seed in until_time_is_up():
        chance, clock = random.Random(seed), ManualClock(LATER)

        async def story(store: Store, chance: random.Random = chance, clock: ManualClock = clock) -> None:
            kind, name = chance.choice(("fixed-window", "sliding-log")), str(chance.random())
            limiter = AsyncLimiter(f"20/second by {kind}", store=store, on_error="raise", namespace=name)
            granted: list[tuple[int, int]] = []

            async def one(number: int, cost: int, timeout: float | None) -> None:
                answer = await limiter.acquire("k", cost, timeout)
                if answer:  # the clock may have moved on since it was decided: its mark tells when that was
                    granted.append((answer.verdicts[0].mark[0], answer.granted))

            tasks = []
            for number in range(300):
                patience = chance.choice((None, None, chance.random() * 20))
                tasks.append(asyncio.create_task(one(number, chance.randint(1, 20), patience)))
                await let_run(chance.randrange(10))
                if chance.random() < 0.3:
                    chance.choice(tasks).cancel()
                if chance.random() < 0.3:
                    clock.advance(chance.random() / 2)
            while not all(task.done() for task in tasks):
                await let_run(20)
                clock.advance(0.25)
            await asyncio.gather(*tasks, return_exceptions=True)
            assert nobody_waits(limiter)
            if home.kind == "redis":  # time goes by while an answer is on its way
                return
            span = 1 if kind == "fixed-window" else 1_000_000  # a window is told by its number
            for at, _ in granted:
                assert sum(cost for when, cost in granted if at <= when < at + span) <= 20

        print("seed", seed)
        home.tell(story, clock, patience=120)


def wait_there(url: str, counts: SynchronizedArray[Any], place: int) -> None:
    """In a process of its own: acquire for ever, writing down what was admitted before the next one is asked for."""
    limiter = Limiter("500/second burst 50", store=url, on_error="raise")
    while True:
        limiter.acquire("k")
        counts[place] += 1


@pytest.mark.parametrize("home", ["shared", "redis"], indirect=True)
def test_processes_killed_while_they_wait(home):
    """Whatever a dead one had charged drains; the others never get more than the limit, and nearly all of it."""
    context, chance = get_context("spawn"), random.Random(soaking.fresh_seed())
    counts = context.Array("q", 1000, lock=False)
    limiter = home.limiter("500/second burst 50")
    limiter.peek("k")
    start = time.monotonic()
    workers = []
    for place in range(4):
        workers.append(context.Process(target=wait_there, args=(home.url, counts, place), daemon=True))
        workers[-1].start()
    place, end = 4, start + max(SECONDS, 3.0)
    while time.monotonic() < end:
        time.sleep(2 * chance.random())
        victim = chance.randrange(4)
        workers[victim].kill()
        workers[victim].join()
        workers[victim] = context.Process(target=wait_there, args=(home.url, counts, place), daemon=True)
        workers[victim].start()
        place += 1
    for worker in workers:
        worker.kill()
        worker.join()
    elapsed = time.monotonic() - start
    admitted = sum(counts)
    assert 0 < admitted <= 50 + 500 * elapsed
    limiter.acquire("k", 50)
    time.sleep(0.11)
    assert limiter.peek("k", 50).allowed


def test_a_shaper_of_many_tasks_by_the_real_clock(home):
    """Every task leaves or is refused; never early, never two in the time of one."""
    for seed in until_time_is_up():
        chance = random.Random(seed)

        async def story(store: Store, chance: random.Random = chance) -> None:
            rate, room = chance.choice((500, 2_000)), chance.randint(1, 400)
            name = str(chance.random())
            queue = AsyncShaper(f"{rate}/second queue {room}", store=store, on_error="raise", namespace=name)
            clock = store.clock
            left: list[int] = []
            refused: list[int] = []

            async def one() -> None:
                decision = await queue.shape("k")
                (left if decision else refused).append(clock.now_us())

            start = clock.now_us()
            tasks = []
            for _ in range(10):
                tasks += [asyncio.create_task(one()) for _ in range(chance.randint(1, 100))]
                await asyncio.sleep(chance.random() / 50)
            await asyncio.gather(*tasks)
            assert len(left) + len(refused) == len(tasks)
            for place, at in enumerate(sorted(left)):
                assert at - start >= place * 1_000_000 // rate

        print("seed", seed)
        home.tell(story, patience=120)
