"""How long answers take while a server stands still."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable

from headgate import AsyncLimiter
from headgate.stores.redis import RedisStore
from tests.support.faults import MANY, in_trouble, run
from tests.support.servers import Server


def latencies(server: Server, seconds: float, ask: Callable[[str], object]) -> list[float]:
    """Of eight threads that each ask every few milliseconds, while the server stands still for so long."""
    stop, times = threading.Event(), list[float]()

    def work(key: str) -> None:
        while not stop.wait(0.002):
            start = time.perf_counter()
            ask(key)
            times.append(time.perf_counter() - start)

    threads = [threading.Thread(target=work, args=(f"k{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    with in_trouble(server, "paused"):
        time.sleep(seconds)
    stop.set()
    for thread in threads:
        thread.join()
    return times


async def _ask_until_cancelled(limiter: AsyncLimiter, key: str, times: list[float]) -> None:
    with contextlib.suppress(asyncio.CancelledError):
        while True:
            start = time.perf_counter()
            await limiter.hit(key)
            times.append(time.perf_counter() - start)
            await asyncio.sleep(0.002)


def awaited_latencies(server: Server, seconds: float, deadline: float) -> list[float]:
    """Of eight tasks that do the same."""
    times: list[float] = []

    async def story(store: RedisStore) -> None:
        limiter = AsyncLimiter(MANY, store=store)
        await limiter.hit("k")
        tasks = [asyncio.create_task(_ask_until_cancelled(limiter, f"k{n}", times)) for n in range(8)]
        with in_trouble(server, "paused"):
            await asyncio.sleep(seconds)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks)

    run(server.url, story, deadline=deadline)
    return times


def percentile(times: list[float], part: float) -> float:
    """What this part of them did not exceed."""
    return sorted(times)[int(len(times) * part)]
