"""Leases on one hot key: what a decision costs at full speed, and how many there are for each round trip."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from itertools import repeat
from time import perf_counter_ns, sleep
from typing import Any

from bench.contestant import KEY, WorkloadError
from bench.measure import Figures
from bench.remote_ours import PATIENT
from bench.server import serving

FULL_SPEED, AWAITED = "headgate leased", "async headgate leased"
DEMANDS = (1_000, 10_000)
"""Requests a second, evenly."""
WORDS, PACED = "1000000000/second", "100000/second"
WARM = 200_000
PACED_SECONDS = 20
"""Times as long as a timed run."""


def paced(demand: int) -> str:
    return f"headgate leased, {demand:,}/s"


def lease(name: str, seconds: float, repeats: int) -> Figures:
    from headgate.stores.redis import RedisStore

    with serving() as server:
        store = RedisStore(server.url, **PATIENT)
        if name == AWAITED:
            return asyncio.run(_awaited(store, server, seconds, repeats))
        if name == FULL_SPEED:
            return _at_full_speed(store, server, seconds, repeats)
        demand = next(each for each in DEMANDS if paced(each) == name)
        return _at(store, server, demand, max(2.0, seconds * PACED_SECONDS))


def _at_full_speed(store: Any, server: Any, seconds: float, repeats: int) -> Figures:
    from headgate import Limiter

    limiter = Limiter(WORDS, store=store, lease=True)

    def hits(count: int) -> int:
        hit, answer = limiter.hit, None
        start = perf_counter_ns()
        for _ in repeat(None, count):
            answer = hit(KEY)
        span = perf_counter_ns() - start
        _expect(answer)
        return span

    hits(WARM)
    before = server.spent()
    count = round(seconds * 1e7)
    spans = _quietly(lambda: [hits(count) for _ in range(max(3, repeats))])
    return _figures(spans, count, server.spent().since(before).trips, "limiter.hit(key)")


async def _awaited(store: Any, server: Any, seconds: float, repeats: int) -> Figures:
    from headgate import AsyncLimiter

    limiter = AsyncLimiter(WORDS, store=store, lease=True)

    async def hits(count: int) -> int:
        answer = None
        start = perf_counter_ns()
        for at in range(count):
            answer = await limiter.hit(KEY)
            if not at % 1000:
                await asyncio.sleep(0)  # leases are bought by tasks, and this one never waits
        span = perf_counter_ns() - start
        _expect(answer)
        return span

    await hits(WARM)
    before = server.spent()
    count = round(seconds * 4e6)
    gc.collect()
    gc.disable()
    spans = [await hits(count) for _ in range(max(3, repeats))]
    gc.enable()
    return _figures(spans, count, server.spent().since(before).trips, "await limiter.hit(key)")


def _at(store: Any, server: Any, demand: int, seconds: float) -> Figures:
    """Even demand for so long, from the first request of the key on."""
    from headgate import Limiter

    limiter = Limiter(PACED, store=store, lease=True)
    before, start, done = server.spent(), perf_counter_ns(), 0
    total = round(demand * seconds)
    while done < total:
        due = min(total, round((perf_counter_ns() - start) * demand / 1e9))
        for _ in range(due - done):
            _expect(limiter.hit(KEY))
        done = due
        sleep(0.001)
    trips = server.spent().since(before).trips
    return {"hits": total, "trips": trips, "per_trip": total / max(1, trips), "call": "limiter.hit(key)"}


def _expect(answer: Any) -> None:
    if answer is None or not answer.allowed or answer.degraded:
        raise WorkloadError(f"a leased hit was answered {answer!r}")


def _quietly(run: Callable[[], list[int]]) -> list[int]:
    gc.collect()
    gc.disable()
    try:
        return run()
    finally:
        gc.enable()


def _figures(spans: list[int], count: int, trips: int, call: str) -> Figures:
    hits = count * len(spans)
    return {"ns": min(spans) / count, "hits": hits, "trips": trips, "per_trip": hits / max(1, trips), "call": call}
