"""Long storms over real servers; SOAK_SECONDS (default 120) is shared by all."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from headgate import AsyncLimiter, Limiter
from headgate.engine import Decision
from headgate.stores.redis import RedisStore
from tests.soak.latencies import awaited_latencies, latencies, percentile
from tests.stores.redis import test_async as test_redis_async
from tests.support import soaking
from tests.support.faults import FAULTS, heal, in_trouble, limiter_on, open_store, spent
from tests.support.proxy import Proxy
from tests.support.servers import Server, wait_until

pytestmark = pytest.mark.soak

SECONDS = soaking.SECONDS / 6
DEADLINE = 0.05
CONNECT = 0.25
SLACK = 1.0
"""Processes are forked and killed all the time. What hangs, hangs for ever."""
LIMIT = "1/hour burst 70000"


@pytest.fixture
def server():
    with Server(persist=True) as server:
        yield server


class Books:
    """Of one key, by whom alone it is hit: what was issued, and what the server is known to have charged."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.issued = self.confirmed = 0
        self.left = 70_000
        self.longest = 0.0

    def issue(self) -> float:
        self.issued += 1
        return time.perf_counter()

    def enter(self, start: float, decision: Decision) -> None:
        self.longest = max(self.longest, time.perf_counter() - start)
        if not decision.degraded:
            assert decision.remaining < self.left, f"{self.key}: an answer to somebody else"
            self.left = decision.remaining
            self.confirmed += 1

    def check(self, server: Server, seed: int) -> None:
        assert self.confirmed > 0, seed
        assert self.confirmed <= spent(server, self.key, LIMIT) <= self.issued, (seed, self.key)
        assert self.longest < CONNECT + DEADLINE + SLACK, (seed, self.key)


Act = Callable[[], object]


def disturbances(server: Server, proxy: Proxy, seed: int) -> Iterator[tuple[Act, Act]]:
    """What is done and what undoes it, until time is up."""
    hang_up = partial(server.command, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    acts: list[tuple[Act, Act]] = [(partial(fault.inflict, proxy), partial(heal, proxy)) for fault in FAULTS.values()]
    acts += [(server.pause, server.resume), (server.kill, server.start)]
    acts += [(server.client().script_flush, bool), (hang_up, bool)]
    chance, end = random.Random(seed), time.monotonic() + SECONDS
    while time.monotonic() < end:
        yield chance.choice(acts)


def test_threads_keep_exact_books_through_every_fault(server):
    """The server has the charges that threads were told of, whatever happened to the wire."""
    seed = soaking.fresh_seed()
    chance, stop, failures = random.Random(seed), threading.Event(), list[BaseException]()
    books = [Books(f"k{n}") for n in range(8)]

    def work(own: Books) -> None:
        try:
            while not stop.wait(0.001):
                own.enter(own.issue(), limiter.hit(own.key))
        except BaseException as error:
            failures.append(error)

    with Proxy(server) as proxy, limiter_on(proxy.url, LIMIT, deadline=DEADLINE, connect_timeout=CONNECT) as limiter:
        threads = [threading.Thread(target=work, args=(own,)) for own in books]
        for thread in threads:
            thread.start()
        try:
            for begin, end in disturbances(server, proxy, seed):
                begin()
                time.sleep(chance.random() * 0.5)
                end()
                time.sleep(chance.random() * 0.5)
            wait_until(lambda: not limiter.peek("k").degraded, "the server is back")
        finally:
            stop.set()
            for thread in threads:
                thread.join()
    assert failures == [], seed
    for own in books:
        own.check(server, seed)


def test_tasks_keep_exact_books_through_every_fault_and_cancellation(server):
    """The server has the charges that the tasks were told of, whichever tasks were cancelled."""
    seed = soaking.fresh_seed()
    chance = random.Random(seed)
    books = [Books(f"k{n}") for n in range(32)]

    async def work(limiter: AsyncLimiter, own: Books, over: asyncio.Event) -> None:
        while not over.is_set():
            start, waits = own.issue(), chance.random() * 0.01 if chance.random() < 0.3 else None
            with contextlib.suppress(TimeoutError):
                own.enter(start, await asyncio.wait_for(limiter.hit(own.key), waits))
            await asyncio.sleep(0.002)

    async def main() -> None:
        over, store = asyncio.Event(), RedisStore(proxy.url, deadline=DEADLINE, connect_timeout=CONNECT)
        limiter = AsyncLimiter(LIMIT, store=store)
        async with asyncio.TaskGroup() as group:
            for own in books:
                group.create_task(work(limiter, own, over))
            for begin, end in disturbances(server, proxy, seed):
                await asyncio.to_thread(begin)
                await asyncio.sleep(chance.random() * 0.5)
                await asyncio.to_thread(end)
                await asyncio.sleep(chance.random() * 0.5)
            async with asyncio.timeout(10):
                while (await limiter.peek("k")).degraded:
                    await asyncio.sleep(0.01)
            over.set()
        await store.aclose()

    with Proxy(server) as proxy:
        asyncio.run(main())
    for own in books:
        own.check(server, seed)


def test_a_million_cancelled_awaits_leave_every_answer_with_its_caller(server):
    """No task gets the answer of another that was cancelled."""
    end = time.monotonic() + SECONDS
    for _ in range(100):
        server.client().flushall()
        test_redis_async.cancel(server, 10_000, soaking.fresh_seed())
        if time.monotonic() > end:
            break


@pytest.mark.parametrize("form", ["threads", "asyncio"])
def test_a_server_that_stands_still_for_seconds_delays_nobody_beyond_the_deadline(form):
    """Of 100 decisions 99 are answered 10 ms after the deadline at the latest."""
    seconds = min(5.0, SECONDS)
    with Server() as server, open_store(server.url, deadline=DEADLINE) as store:
        if form == "threads":
            times = latencies(server, seconds, Limiter(LIMIT, store=store).hit)
        else:
            times = awaited_latencies(server, seconds, DEADLINE)
    assert percentile(times, 0.99) < DEADLINE + 0.01


def test_a_server_killed_again_and_again_comes_back_with_every_charge_it_has_confirmed(server):
    """A server that keeps its data has every confirmed charge, and each kill and return is told once."""
    end, told = time.monotonic() + SECONDS, list[bool]()
    books, kills = Books("k"), 0
    with limiter_on(server.url, LIMIT, on_transition=lambda each: told.append(each.available)) as limiter:
        while time.monotonic() < end:
            for _ in range(50):
                books.enter(books.issue(), limiter.hit("k"))
            with in_trouble(server, "killed"):
                assert all(limiter.hit("k").degraded for _ in range(5))
            kills += 1
            wait_until(lambda: told[-1], "the server is back")
    assert told == [False, True] * kills
    assert (books.confirmed, spent(server, "k", LIMIT)) == (50 * kills, 50 * kills)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_forks_under_load_count_exactly(server):
    """Threads of the parent are on their way in the very moment of each fork."""
    end, stop, counts = time.monotonic() + SECONDS, threading.Event(), [0] * 3
    forks = 0

    def work(place: int) -> None:
        while not stop.wait(0.001):
            assert not limiter.hit("k").degraded
            counts[place] += 1

    with limiter_on(server.url, LIMIT, deadline=5) as limiter:
        threads = [threading.Thread(target=work, args=(place,)) for place in range(3)]
        for thread in threads:
            thread.start()
        while time.monotonic() < end and forks < 100:
            child = os.fork()
            if not child:
                os._exit(sum(limiter.hit("k").degraded for _ in range(20)))
            assert os.waitpid(child, 0)[1] == 0
            forks += 1
        stop.set()
        for thread in threads:
            thread.join()
    assert spent(server, "k", LIMIT) == sum(counts) + 20 * forks
