"""Leases among real processes: one budget for four workers by real time, whoever is killed, forked or gone."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.connection import Connection
from typing import Any

import pytest
import redis

from headgate import AsyncLimiter, Lease, Limiter
from headgate.stores.redis import RedisStore
from tests.support.faults import PATIENT, calls
from tests.support.leasing import drain, warm
from tests.support.processes import CONTEXT
from tests.support.servers import Server, wait_until

LIMITS = ["10000/4 weeks by fixed-window", "1/hour burst 10000", "10000/4 weeks by sliding-window/28"]
VALIDITY = 0.25

pytestmark = [pytest.mark.engineless, pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")]


@pytest.fixture(scope="module")
def fleet() -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(4, mp_context=CONTEXT) as pool:
        yield pool


def gather(url: str, count: int = 4) -> None:
    """Return when so many are there."""
    with redis.Redis.from_url(url) as client:
        client.incr("ready")
        wait_until(lambda: int(client.get("ready") or 0) >= count, f"{count} processes are ready", 60)


def exhaust(url: str, limit: str, number: int) -> int:
    """Hit until refused, in turn or by fifty coroutines; how many were admitted."""
    gather(url)
    store = RedisStore(url, deadline=PATIENT)
    if number % 2:
        with Limiter(limit, store=store, lease=True, on_error="raise") as threaded:
            return drain(threaded)

    async def main() -> int:
        async def some() -> int:
            admitted = 0
            while await limiter.hit("k"):
                admitted += 1
            return admitted

        limiter = AsyncLimiter(limit, store=store, lease=True, on_error="raise")
        async with limiter:
            admitted = sum(await asyncio.gather(*(some() for _ in range(50))))
        await store.aclose()
        return admitted

    return asyncio.run(main())


@pytest.mark.parametrize("limit", LIMITS, ids=["window", "bucket", "slots"])
def test_four_processes_admit_exactly_the_limit_for_few_questions(server, fleet, limit):
    """Four workers admit 10,000 together, for fewer than 2,000 commands."""
    server.command("CONFIG", "RESETSTAT")
    admitted = [job.result(60) for job in [fleet.submit(exhaust, server.url, limit, n) for n in range(4)]]
    scripts = calls(server, "eval", "evalsha")
    store = RedisStore(server.url, deadline=PATIENT)
    assert sum(admitted) + drain(Limiter(limit, store=store, on_error="raise")) == 10_000
    assert sum(admitted) >= 9_000
    assert scripts < 2_000
    store.close()


ENOUGH = 1000
"""Hits of one process: more than any burst here."""


def hammer(url: str, limit: str, seconds: float, number: int) -> tuple[float, float, dict[int, int]]:
    """Hit for some time, often enough on a busy machine: when, and the admitted hits of each second of the clock."""
    gather(url)
    store = RedisStore(url, deadline=PATIENT)
    lease = Lease(validity=VALIDITY)
    seen: Counter[int] = Counter()
    with Limiter(limit, store=store, lease=lease, on_error="raise") as limiter:
        start, asked = time.monotonic(), 0
        while time.monotonic() < start + seconds or asked < ENOUGH:
            asked += 1
            before = time.time()
            if limiter.hit("k"):
                seen[int(before) if int(before) == int(time.time()) else 0] += 1
        end = time.monotonic()
    store.close()
    return start, end, dict(seen)


@pytest.mark.parametrize("seconds", [0.3, pytest.param(2.5, marks=pytest.mark.soak)])
def test_the_bound_holds_by_real_time(server, fleet, seconds):
    """Four processes admit at most burst + rate * (t + validity), whatever the timing."""
    jobs = [fleet.submit(hammer, server.url, "2000/second burst 300", seconds, number) for number in range(4)]
    starts, ends, seen = zip(*(job.result(60) for job in jobs), strict=True)
    admitted = sum(sum(each.values()) for each in seen)
    assert 300 <= admitted <= 300 + 2000 * (max(ends) - min(starts) + VALIDITY)


@pytest.mark.parametrize("seconds", [0.3, pytest.param(2.5, marks=pytest.mark.soak)])
def test_far_above_a_limit_processes_ask_at_a_pace(server, fleet, seconds):
    """Four processes at full speed ask at most every 20 ms each, beside what they ask before the key is short."""
    server.command("CONFIG", "RESETSTAT")
    jobs = [fleet.submit(hammer, server.url, "500/second burst 100", seconds, number) for number in range(4)]
    starts, ends, seen = zip(*(job.result(60) for job in jobs), strict=True)
    spans = [end - start for start, end in zip(starts, ends, strict=True)]
    assert calls(server, "eval", "evalsha") <= sum(50 * span + 50 for span in spans)
    admitted = sum(sum(each.values()) for each in seen)
    assert 100 <= admitted <= 100 + 500 * (max(ends) - min(starts) + VALIDITY)


@pytest.mark.parametrize("seconds", [0.5, pytest.param(2.5, marks=pytest.mark.soak)])
def test_no_window_admits_more_than_its_limit_by_real_time(server, fleet, seconds):
    """Counted are hits that began and ended within one second of the clock, which is the server's too."""
    jobs = [fleet.submit(hammer, server.url, "1000/second by fixed-window", seconds, number) for number in range(4)]
    seen: Counter[int] = Counter()
    for job in jobs:
        seen.update(job.result(60)[2])
    del seen[0]
    assert seen and max(seen.values()) <= 1000


def hold(url: str, told: Connection) -> None:
    """Lease, say what was spent, and wait to be killed or told to go."""
    limiter = Limiter("3000/4 weeks by fixed-window", store=url, lease=Lease(validity=3600), on_error="raise")
    told.send(warm(limiter, hits=50))
    told.recv()


@pytest.mark.parametrize("killed", [True, False], ids=["killed", "exits without closing"])
def test_what_a_process_held_when_it_went_is_lost_and_nothing_else(server, killed):
    """Tokens that a process had leased stay charged when it is killed or exits; the rest is there."""
    limit = "3000/4 weeks by fixed-window"
    ours, theirs = CONTEXT.Pipe()
    process = CONTEXT.Process(target=hold, args=(f"{server.url}?deadline=5", theirs))
    process.start()
    assert ours.recv() == 50
    store = RedisStore(server.url, deadline=PATIENT)
    other = Limiter(limit, store=store, lease=True, on_error="raise")
    left = other.peek("k", 0).remaining
    assert 2700 <= left < 2950
    if killed:
        process.kill()
    else:
        ours.send("go")
    process.join()
    assert process.exitcode == (-signal.SIGKILL if killed else 0)
    assert drain(other) == left
    store.close()


def lease_and_idle(url: str, awaited: bool, told: Connection) -> None:
    """Lease, say what was spent, and then do nothing but live; at the end, say which threads there are."""
    options: Any = {"store": f"{url}?deadline=5", "lease": Lease(validity=VALIDITY), "on_error": "raise"}

    async def main() -> None:
        limiter = AsyncLimiter("6000/4 weeks by fixed-window", **options)
        told.send(sum([(await limiter.hit("k")).allowed for _ in range(50)]))
        await asyncio.to_thread(told.recv)

    if awaited:
        asyncio.run(main())
    else:
        limiter = Limiter("6000/4 weeks by fixed-window", **options)
        told.send(warm(limiter, hits=50))
        told.recv()
    told.send([thread.name for thread in threading.enumerate() if thread.name == "headgate-leases"])
    told.recv()


@pytest.mark.parametrize("awaited", [False, True], ids=["threads", "tasks"])
def test_processes_that_live_and_ask_no_more_give_back_what_they_leased(server, awaited):
    """Two of them, by real time: in the end the server counts what was spent and nothing else."""
    limit, pipes, workers = "6000/4 weeks by fixed-window", [], []
    for _ in range(2):
        ours, theirs = CONTEXT.Pipe()
        workers.append(CONTEXT.Process(target=lease_and_idle, args=(server.url, awaited, theirs)))
        pipes.append(ours)
        workers[-1].start()
    assert [pipe.recv() for pipe in pipes] == [50, 50]
    store = RedisStore(server.url, deadline=PATIENT)
    other = Limiter(limit, store=store, on_error="raise")
    wait_until(lambda: other.peek("k", 0).remaining == 5900, "what was not spent is back")
    for pipe in pipes:
        pipe.send("go on")
    assert [pipe.recv() for pipe in pipes] == [[] if awaited else ["headgate-leases"]] * 2
    for pipe in pipes:
        pipe.send("end")
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0]
    store.close()


def storm(url: str, limit: str, counts: Any, number: int) -> None:
    """Hit until refused, and write down what was admitted where a kill cannot undo it. The first does not live long."""
    gather(url)
    limiter = Limiter(limit, store=f"{url}?deadline=5", lease=True, on_error="raise")
    while limiter.hit("k"):
        counts[number] += 1
        if number == 0 and counts[0] == 1000:
            break
    if number == 0:
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_killed_in_the_middle_costs_at_most_what_it_held(server):
    """Of 20,000 at least 70 % are admitted, and never more than all."""
    limit = "20000/4 weeks by fixed-window"
    counts = CONTEXT.Array("q", 4, lock=False)
    workers = [CONTEXT.Process(target=storm, args=(server.url, limit, counts, number)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [-signal.SIGKILL, 0, 0, 0]
    store = RedisStore(server.url, deadline=PATIENT)
    admitted = sum(counts) + drain(Limiter(limit, store=store, on_error="raise"))
    assert Limiter(limit, store=store).peek("k", 0).remaining == 0
    assert 20_000 * 0.7 <= admitted <= 20_000  # two leases of a tenth each, and one on its way
    store.close()


def cut_off(url: str, told: Connection) -> None:
    """Lease, hear how many do, and admit alone what the policy says."""
    store = RedisStore(url, deadline=PATIENT)

    def leasing() -> Limiter:
        return Limiter("3000/4 weeks by fixed-window", store=store, lease=Lease(validity=0.05))

    warm(leasing())
    told.send("there")
    told.recv()
    limiter = leasing()  # whose first purchase counts again
    warm(limiter, hits=100)
    told.send("counted")
    told.recv()
    time.sleep(0.1)  # what was leased is void then
    decisions = [limiter.hit("alone") for _ in range(2000)]
    told.send([sum(each.allowed for each in decisions), all(each.degraded for each in decisions)])
    store.close()


def test_processes_that_are_cut_off_admit_one_limit_together():
    """Two processes that lose the server admit half of the limit each."""
    pipes, workers = [], []
    with Server() as server:
        for _ in range(2):
            ours, theirs = CONTEXT.Pipe()
            workers.append(CONTEXT.Process(target=cut_off, args=(server.url, theirs)))
            pipes.append(ours)
            workers[-1].start()
        assert [pipe.recv() for pipe in pipes] == ["there"] * 2
        for pipe in pipes:
            pipe.send("count")
        assert [pipe.recv() for pipe in pipes] == ["counted"] * 2
        server.kill()
        for pipe in pipes:
            pipe.send("alone")
        assert [pipe.recv() for pipe in pipes] == [[1500, True]] * 2
        for worker in workers:
            worker.join()
