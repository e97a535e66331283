"""What the tests of waiting have in common: a home of every kind, and time that a test moves by hand."""

from __future__ import annotations

import asyncio
import inspect
import random
import shutil
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headgate import AsyncLimiter, Decision, Limiter, steps
from headgate.engine import NATIVE
from headgate.stores import AsyncStore, Store, open_store
from headgate.testing import ManualClock
from tests.support import inside
from tests.support.awaiting import awaited_by
from tests.support.servers import BINARIES, Server

EVERY_HOME = ("memory", "shared", "redis")
EVERY_WAY = ("memory", "shared", "redis", "memory awaited", "shared awaited", "redis awaited")
LATER = 1_000_000_020.0
"""A whole minute, and long after every window began."""
PATIENCE = 10.0
"""Seconds after which a test gives up on something that should have happened at once."""


class Home:
    """Stores of one kind that see the same states, by clocks of their own."""

    def __init__(self, kind: str, url: str) -> None:
        self.kind, self.url = kind, url
        self._opened: list[Store] = []

    def store(self, clock: ManualClock | None = None) -> Store:
        """Another one; memory is never the same memory."""
        self._opened.append(open_store(self.url, clock))
        return self._opened[-1]

    def close(self) -> None:
        for store in self._opened:
            if hasattr(store, "close"):
                store.close()

    def limiter(self, *limits: str, clock: ManualClock | None = None, **options: Any) -> Limiter:
        return Limiter(*limits, store=self.store(clock), **{"on_error": "raise", **options})

    def tell(
        self, story: Callable[[Store], Awaitable[None]], clock: ManualClock | None = None, patience: float = 30.0
    ) -> None:
        """In an event loop of its own, with a store of its own."""

        async def main() -> None:
            store = self.store(clock)
            try:
                async with asyncio.timeout(patience):
                    await story(store)
            finally:
                await _end_others()
                if hasattr(store, "aclose"):
                    await store.aclose()

        asyncio.run(main())


def _tell(home: Home, story: Callable[..., Awaitable[None]]) -> None:
    clock = ManualClock(LATER)
    home.tell(lambda store: story(store=store, clock=clock), clock)


def in_each_home(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """A test with a store of each home; by a clock that stands still, if it wants the clock."""
    if "clock" in inspect.signature(test).parameters:
        return awaited_by(_tell, "home", gives=("store", "clock"))(test)
    run = lambda home, story: home.tell(lambda store: story(store=store))  # noqa: E731
    return awaited_by(run, "home", gives=("store",))(test)


@contextmanager
def home_of(kind: str) -> Iterator[Home]:
    """A home that nobody else has."""
    with _url_of(kind) as url:
        home = Home(kind, url)
        try:
            yield home
        finally:
            home.close()


@contextmanager
def _url_of(kind: str) -> Iterator[str]:
    if kind == "shared":
        if not NATIVE:
            pytest.skip("shared stores need the native engine")
        folder = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
        try:
            yield f"shared://{folder}/store?max_keys=1000"
        finally:
            shutil.rmtree(folder)
    elif kind == "redis":
        if "valkey" not in BINARIES:
            pytest.skip("there is no server here")
        server = _running_server()
        server.client().flushall()
        yield f"{server.url}?deadline=10&connect_timeout=10&remember_refusals=0"
    else:
        yield "memory://"


async def _end_others() -> None:
    """End the tasks that a story left behind: a cancelled task may still have something to give back."""
    for _ in range(5):
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others, timeout=PATIENCE)


_servers: list[Server] = []


def _running_server() -> Server:
    """One for the whole run; it ends with the process."""
    if not _servers:
        _servers.append(Server().start())
    return _servers[0]


class Waited:
    """An `AsyncLimiter` or what it returns, every method waited for: for tests that hold for both kinds."""

    def __init__(self, thing: Any, runner: asyncio.Runner) -> None:
        self.thing, self.runner = thing, runner

    def __bool__(self) -> bool:
        return bool(self.thing)

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self.thing, name)
        if not inspect.iscoroutinefunction(attribute):
            return attribute

        def waited(*asked: Any, **options: Any) -> Any:
            answer = self.runner.run(attribute(*asked, **options))
            return Waited(answer, self.runner) if hasattr(answer, "settle") else answer

        return waited


@contextmanager
def limiters_of(kind: str) -> Iterator[Callable[..., Any]]:
    """Limiters of a home: `redis`, or `redis awaited` for the async ones."""
    home_kind, _, awaited = kind.partition(" ")
    with home_of(home_kind) as home, asyncio.Runner() as runner:
        stores = []

        def make(*limits: str, clock: ManualClock, **options: Any) -> Any:
            if not awaited:
                return home.limiter(*limits, clock=clock, **options)
            stores.append(home.store(clock))
            return Waited(AsyncLimiter(*limits, store=stores[-1], **{"on_error": "raise", **options}), runner)

        yield make
        for store in stores:
            if hasattr(store, "aclose"):
                runner.run(store.aclose())


class HandMoved(ManualClock):
    """A clock for threads: a thread that sleeps by it really sleeps, until the test has moved it to that time."""

    def __init__(self, start: float = LATER) -> None:
        self._moved = threading.Condition()
        self.asleep = 0
        super().__init__(start)

    def _move_to(self, us: int) -> None:
        with self._moved:
            super()._move_to(us)
            self._moved.notify_all()

    def sleep_until(self, at_us: int) -> None:
        with self._moved:
            self.asleep += 1
            try:
                assert self._moved.wait_for(lambda: self.us >= at_us, PATIENCE)
            finally:
                self.asleep -= 1


class Interrupting(ManualClock):
    """A clock that interrupts the first thread that sleeps by it."""

    def sleep_until(self, at_us: int) -> None:
        raise KeyboardInterrupt


async def let_run(turns: int = 30) -> None:
    """Let every task do what it can without time going on."""
    for _ in range(turns):
        await asyncio.sleep(0)


async def until(true: Callable[..., object]) -> None:
    """Let the event loop run until it is so, however long servers take."""
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, "it never came to that"
        await asyncio.sleep(0)


def eventually(true: Callable[..., object]) -> None:
    """As `until`, in a thread."""
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, "it never came to that"
        time.sleep(0.0005)


def in_line(limiter: AsyncLimiter | Limiter) -> int:
    """How many wait at a limiter."""
    return limiter.waiting


def nobody_waits(limiter: AsyncLimiter | Limiter) -> bool:
    """Whether no queue is left, not even an empty one, and no question of a caller that has gone."""
    return inside.is_idle(limiter)


async def waiting(limiter: AsyncLimiter, count: int, asleep: int = 1) -> None:
    """Wait until this number of callers wait and some are asleep: their questions are answered, and time may go on."""
    await until(lambda: limiter.waiting == count and inside.asleep(inside.timers_of(limiter)) >= asleep)


async def crowd(
    limiter: AsyncLimiter, costs: list[int], done: list[int], at_once: bool = False
) -> list[asyncio.Task[None]]:
    """Tasks that acquire one key, each started when the one before it waits, and write down when they go."""

    async def one(number: int, cost: int) -> None:
        assert await limiter.acquire("k", cost)
        done.append(number)

    tasks: list[asyncio.Task[None]] = []
    for number, cost in enumerate(costs):
        tasks.append(asyncio.create_task(one(number, cost)))
        if not at_once:
            await until(lambda: in_line(limiter) + len(done) == len(tasks))
    await until(lambda: in_line(limiter) + len(done) == len(tasks))
    return tasks


async def cancel_at_random(store: Store, clock: ManualClock, count: int, chance: random.Random) -> None:
    """Tasks acquire while others are cancelled; in the end the books have what was really used, and never less.

    The limit is `100/second burst N` with time for a tenth of the tasks to go, so the bucket never runs dry, and
    whatever was given back too much or too little shows to the microsecond.
    """
    burst = count // 10
    limiter = AsyncLimiter(f"100/second burst {burst}", store=store, on_error="raise", max_waiting=count)
    tasks = []
    start = clock.us
    for _ in range(count):
        tasks.append(asyncio.create_task(limiter.acquire("k")))
        if chance.random() < 0.02:
            chance.choice(tasks).cancel()
        if chance.random() < 0.05:
            await let_run(chance.randrange(4))
    for _ in range(burst // 10):
        clock.advance(chance.random() / 10)
        await let_run(chance.randrange(4))
        chance.choice(tasks).cancel()
    order = list(tasks)
    chance.shuffle(order)
    for number, task in enumerate(order):
        task.cancel()
        if number % 97 == 0:
            await let_run(1)
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    await until(lambda: not steps.unfinished)
    used = sum(not isinstance(end, BaseException) for end in ends)
    assert 0 < used < count and all(isinstance(end, Decision | asyncio.CancelledError) for end in ends)
    left = await limiter.peek("k", 0)
    drained = clock.us - start
    assert used * 10_000 > drained, "the test itself let the bucket run dry"
    charged = left.reset_us + drained
    if isinstance(store, AsyncStore):  # a task that is cancelled on the way to a server may leave a gap before others
        assert used * 10_000 <= charged <= count * 10_000
    else:
        assert charged == used * 10_000
    assert left.remaining == max(0, burst - -(-left.reset_us // 10_000))
    assert nobody_waits(limiter)
    clock.advance(left.reset_after)
    assert (await limiter.peek("k", burst)).allowed
