"""One hot key that is asked for up to fifty times its limit: fleets in virtual time, and processes on a server."""

from __future__ import annotations

import multiprocessing
from itertools import product
from statistics import median
from time import perf_counter, sleep
from typing import Any

from bench.contestant import KEY
from bench.measure import Figures
from bench.remote_ours import PATIENT
from bench.server import serving

LIMIT, RATE = "10000/second", 10_000
PROCESSES, REAL_LIMIT, REAL_RATE = 4, "500/second", 500
FLEETS = (PROCESSES, 100, 1_000)
LOADS = (0.5, 1, 2, 5, 50)
"""Requests, by the rate of the limit."""
SECONDS = 5
"""Of virtual time. The first, in which the fleet gets to know the key, is apart. Fewer than four others are too few for
a fairness: a thousand nodes are given ten units a second each."""
REAL_SECONDS = 6.0


def simulated(nodes: int, load: float) -> str:
    return f"{nodes:,} nodes at {load:g}x"


def real(load: float) -> str:
    return f"{PROCESSES} processes at {load:g}x"


SIMULATED = {simulated(nodes, load): (nodes, load) for nodes, load in product(FLEETS, LOADS)}
REAL = {real(load): load for load in LOADS}
WINDOWS = {
    f"{simulated(1_000, load)}, {kind}": (1_000, load, f"{LIMIT} by {kind}", 2)
    for kind, load in product(("fixed-window", "sliding-window", "sliding-window/10"), LOADS[:-1])
}
"""A window pays once for the tokens that a thousand nodes hold, in two seconds: these are apart."""


def overload(name: str) -> Figures:
    each = SIMULATED | WINDOWS
    return _simulate(*each[name]) if name in each else _run(REAL[name])


def _simulate(nodes: int, load: float, limits: str = LIMIT, since: int = 1) -> Figures:
    from tests.support.lease_laws import admitted, equal, fairness, violations
    from tests.support.lease_setup import Setup
    from tests.support.lease_world import World

    setup = Setup(seed=1, limits=limits, phases=equal(nodes, load * RATE), seconds=SECONDS, awaited="half", threads=4)
    world = World(setup).run()
    trips = [world.ledger.by_second[second] for second in range(SECONDS)]
    each, rest = sum(trips[since:]) / (SECONDS - since), RATE * (SECONDS - since)
    told = sorted(world.ledger.told) or [0]
    came = (at for number in range(nodes) for at, _, _ in world.demand(number)) if load <= 1 else ()
    wanted = sum(at >= since * 1_000_000 for at in came)
    return {
        "first": trips[0],
        "trips": each,
        "a node": each / nodes,
        "per_trip": load * RATE / max(1.0, each),
        "use": 100 * admitted(world, since=since) / min(wanted or rest, rest),
        "fairness": fairness(world, since=1),
        "told": median(told) / 1000,
        "told_last": told[len(told) * 99 // 100] / 1000,
        "misled": world.ledger.misled,
        "violations": len(violations(world)),
    }


def _run(load: float) -> Figures:
    """Processes that are asked evenly, on a server of their own; the first second is apart."""
    spawn = multiprocessing.get_context("spawn")
    with serving() as server:
        ready, start = spawn.Barrier(PROCESSES + 1), spawn.Barrier(PROCESSES + 1)
        found: Any = spawn.Queue()
        given = (server.url, load * REAL_RATE / PROCESSES, ready, start, found)
        workers = [spawn.Process(target=_work, args=given) for _ in range(PROCESSES)]
        for worker in workers:
            worker.start()
        ready.wait()
        before = server.spent()
        start.wait()
        each = [found.get() for _ in workers]
        trips = server.spent().since(before).trips
        for worker in workers:
            worker.join()
    yes, asked = [given[0] for given in each], sum(given[1] for given in each)
    told = sorted(wait for given in each for wait in given[2]) or [0.0]
    return {
        "trips": trips / REAL_SECONDS,
        "a node": trips / REAL_SECONDS / PROCESSES,
        "per_trip": asked / max(1, trips),
        "use": 100 * sum(yes) / min(asked, REAL_RATE * REAL_SECONDS),
        "fairness": sum(yes) ** 2 / (PROCESSES * sum(count**2 for count in yes)),
        "told": 1000 * median(told),
        "told_last": 1000 * told[len(told) * 99 // 100],
    }


def _work(url: str, demand: float, ready: Any, start: Any, found: Any) -> None:
    """Spend the burst, then hit at this rate; how many were admitted, how many were asked for, and the waits."""
    from headgate import Limiter
    from headgate.stores.redis import RedisStore

    limiter = Limiter(REAL_LIMIT, store=RedisStore(url, **PATIENT), lease=True)
    limiter.peek(KEY)
    ready.wait()
    while limiter.hit(KEY):
        pass
    start.wait()
    begin, done, yes, told = perf_counter(), 0, 0, []
    while (now := perf_counter() - begin) < REAL_SECONDS:
        due = round(now * demand)
        for _ in range(due - done):
            decision = limiter.hit(KEY)
            yes += decision.allowed
            if not decision.allowed:
                told.append(decision.retry_after)
        done = due
        sleep(0.001)
    found.put((yes, done, told[:: max(1, len(told) // 10_000)]))
    limiter.close()
