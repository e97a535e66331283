"""What is measured of one remote, in a process of its own and at a server of its own. Every answer is counted."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from statistics import median
from threading import Barrier
from time import perf_counter_ns
from typing import NamedTuple

from bench.jobs import Job, Scale
from bench.measure import Figures
from bench.remote import AMOUNT, Lap, Remote, Visit, prove, user_keys, visiting
from bench.server import Spent, serving

A_SECOND = 20_000
"""About the decisions of one second: runs are of a fixed length."""
OF_A_KEY = 50
"""Hits of one key in a run, at most: with those before it none is refused."""
TASKS = 256
OF_A_TASK = 40
LONGER = 2
"""Runs of many at once last about so many times as long, in total."""
THREADS = (1, 4, 16)
PATIENCE = 60.0
FLOODED = 100
"""Keys that are refused."""
FLOOD_A_SECOND = 2_000_000


async def measure_remote(job: Job, remote: Remote, scale: Scale) -> Figures:
    with serving() as server:
        await prove(remote, server)
        async with visiting(remote, server) as visit:
            return await MEASURES[job.kind](visit, job, scale)


class Run(NamedTuple):
    """The time of one run and what the server did in it."""

    span: int
    hits: int
    spent: Spent

    @property
    def ns(self) -> float:
        return self.span / self.hits


async def one_by_one(visit: Visit, job: Job, scale: Scale) -> Figures:
    """Nanoseconds of a decision with the next one asked for after it, and what it costs the server."""
    hits = round(scale.seconds * A_SECOND)
    keys = user_keys(-(-hits // OF_A_KEY))
    picks = list(islice(keys * OF_A_KEY, hits))
    with visit.server.on_one_core():
        runs = [await _run(visit, keys, hits, lambda: visit.admit(picks)) for _ in range(scale.repeats)]
    trips = min(run.spent.trips for run in runs)
    visit.expect(trips >= hits, f"{hits} decisions made {trips} round trips")
    return {
        "ns": min(run.ns for run in runs),
        "cpu_us": median(run.spent.cpu * 1e6 / hits for run in runs),
        "command_us": median(run.spent.busy / hits for run in runs),
        "trips": max(run.spent.trips / hits for run in runs),
        "scripts": max(run.spent.scripts / hits for run in runs),
    }


async def crowd(visit: Visit, job: Job, scale: Scale) -> Figures:
    """Nanoseconds of a decision when so many tasks each await one after the other, with keys of their own."""
    each = max(1, round(OF_A_TASK * scale.seconds * 10))
    keys = user_keys(TASKS)

    async def together(count: int) -> Lap:
        start = perf_counter_ns()
        laps = await asyncio.gather(*(visit.admit([key] * count) for key in keys))
        return Lap(start, perf_counter_ns(), sum(lap.counted for lap in laps))

    await together(1)
    runs: list[Run] = []
    while len(runs) < scale.repeats and sum(run.span for run in runs) < LONGER * scale.repeats * scale.seconds * 1e9:
        runs.append(await _run(visit, keys, TASKS * each, lambda: together(each)))
    return {"ns": min(run.ns for run in runs), "trips": min(run.spent.trips / run.hits for run in runs)}


async def threads(visit: Visit, job: Job, scale: Scale) -> Figures:
    """Nanoseconds of a decision, the time of all threads being one time, for each number of threads."""
    return {f"ns_{count}": await _in_threads(visit, count, scale) for count in THREADS}


async def _in_threads(visit: Visit, count: int, scale: Scale) -> float:
    """The threads stay, so that what each has of its own is there before it is timed."""
    each = max(1, round(scale.seconds * A_SECOND) // count)
    shares = [user_keys(-(-each // OF_A_KEY), 100_000 * number) for number in range(1, 1 + count)]
    picks = [list(islice(share * OF_A_KEY, each)) for share in shares]
    barrier = Barrier(count)

    def take_part(keys: Sequence[str]) -> Lap:
        barrier.wait(PATIENCE)
        return visit.all_of(keys, Lap(*visit.yes(keys, **visit.names)), "admitted")

    with ThreadPoolExecutor(count) as pool:

        async def together() -> Lap:
            """From the first to leave the barrier to the end of the last."""
            laps = list(pool.map(take_part, picks))
            return Lap(min(lap.start for lap in laps), max(lap.end for lap in laps), sum(lap.counted for lap in laps))

        visit.server.forget()
        await together()
        keys = [key for share in shares for key in share]
        return min([(await _run(visit, keys, count * each, together)).ns for _ in range(scale.repeats)])


async def weigh(visit: Visit, job: Job, scale: Scale) -> Figures:
    """Bytes in the server for each of so many keys, hit once."""
    return await _weighed(visit, user_keys(job.keys))


async def weigh_full(visit: Visit, job: Job, scale: Scale) -> Figures:
    """Bytes in the server for each of so many keys whose limit is used up, one unit after the other."""
    return await _weighed(visit, user_keys(job.keys) * AMOUNT)


async def _weighed(visit: Visit, picks: Sequence[str]) -> Figures:
    """The server keeps something of every command: each is there before, those of a second hit as well."""
    await visit.admit(["user:first"] * 2)
    visit.server.forget()
    before = visit.server.memory()
    lap = await visit.admit(picks)
    grown, count = visit.server.memory() - before, len(set(picks))
    held, expire = visit.server.keys()
    visit.expect(held >= count, f"{count} keys were hit and {held} are held")
    return {"bytes": grown / count, "held": held / count, "expire": expire / held, "ns": lap.span / len(picks)}


async def flood(visit: Visit, job: Job, scale: Scale) -> Figures:
    """Decisions for each round trip while keys that have used their limit up are hit on."""
    keys = user_keys(FLOODED)
    await visit.admit(keys * AMOUNT)
    hits = round(scale.seconds * FLOOD_A_SECOND)
    before = visit.server.spent()
    with _no_collector():
        lap = await visit.refuse(list(islice(keys * -(-hits // FLOODED), hits)))
    trips = visit.server.spent().since(before).trips
    return {"ns": lap.span / hits, "hits": hits, "trips": trips, "fewer": hits / max(1, trips)}


async def _run(visit: Visit, keys: Sequence[str], hits: int, go: Callable[[], Awaitable[Lap]]) -> Run:
    """All keys as new, then known: what exists at the first hit of a key only is not timed."""
    visit.server.forget()
    await visit.admit(keys)
    with _no_collector():
        before = visit.server.spent()
        lap = await go()
        spent = visit.server.spent().since(before)
    visit.expect(lap.counted == hits, f"of {hits} hits the server admitted {lap.counted}")
    return Run(lap.span, hits, spent)


@contextmanager
def _no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


MEASURES: dict[str, Callable[[Visit, Job, Scale], Awaitable[Figures]]] = {
    "one by one": one_by_one,
    "crowd": crowd,
    "threads": threads,
    "weigh": weigh,
    "weigh full": weigh_full,
    "flood": flood,
}
