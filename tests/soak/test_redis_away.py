"""How long decisions take while servers of every kind are away in every way, and how soon they are found back.

Each row that is printed is of callers that were connected before and of callers that come while the server is away: the
worst first decision of those who come, the 99th percentile and the worst of all, and the seconds from the server's
return to the first decision it takes again. The bounds asserted leave room for a busy machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Self

import pytest

from headgate import AsyncLimiter, Limiter
from headgate.stores.redis import RedisStore
from tests.soak.latencies import percentile
from tests.support.clusters import Cluster, SentinelSet
from tests.support.faults import MANY
from tests.support.servers import Server
from tests.support.unreachable import NAME, Names, black_hole

pytestmark = pytest.mark.soak

DEADLINE, CONNECT = 0.05, 0.25
AWAY = 1.5
"""Seconds."""
BUSY = 0.2
"""Seconds that other work on the machine may take."""
CALLERS = 4


class Callers:
    """Callers that ask every few milliseconds, in threads or in an event loop, until stopped; and their answers."""

    def __init__(self, way: str, url: str) -> None:
        self.took: list[float] = []
        self.answers: list[tuple[float, bool]] = []
        """When each decision ended, and whether a server took it."""
        self.firsts: list[float] = []
        self._stop = threading.Event()
        self._store = RedisStore(url, deadline=DEADLINE, connect_timeout=CONNECT)
        work = self._work if way == "threads" else self._work_awaited
        self._threads = [threading.Thread(target=work, args=(n,)) for n in range(CALLERS if way == "threads" else 1)]
        for thread in self._threads:
            thread.start()

    def _note(self, start: float, degraded: bool, first: bool) -> None:
        end = time.perf_counter()
        self.took.append(end - start)
        self.answers.append((end, not degraded))
        if first:
            self.firsts.append(end - start)

    def _work(self, number: int) -> None:
        limiter, first = Limiter(MANY, store=self._store), True
        while not self._stop.wait(0.002):
            start = time.perf_counter()
            self._note(start, limiter.hit(f"k{number}").degraded, first)
            first = False

    def _work_awaited(self, _: int) -> None:
        async def work(limiter: AsyncLimiter, number: int) -> None:
            first = True
            while not self._stop.is_set():
                start = time.perf_counter()
                self._note(start, (await limiter.hit(f"k{number}")).degraded, first)
                first = False
                await asyncio.sleep(0.002)

        async def main() -> None:
            limiter = AsyncLimiter(MANY, store=self._store)
            await asyncio.gather(*(work(limiter, number) for number in range(CALLERS)))
            await self._store.aclose()

        asyncio.run(main())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self._store.close()

    def back(self, since: float) -> float:
        """Seconds until every decision is a server's again."""
        away = [end for end, served in self.answers if end > since and not served]
        return max(away, default=since) - since


class Scene:
    """Servers of one kind, and what befalls them."""

    def __init__(self, group: Server | Cluster | SentinelSet, names: Names) -> None:
        self.group, self.names = group, names
        self.servers = [group] if isinstance(group, Server) else [node for node in group.nodes if node.running]
        self._faults = contextlib.ExitStack()

    def url(self, fault: str) -> str:
        named = fault == "slow resolver" or (fault == "half dead" and isinstance(self.group, Server))
        seeds = ",".join(f"127.0.0.1:{server.port}" for server in self.servers)
        url = f"redis+cluster://{seeds}" if isinstance(self.group, Cluster) else self.group.url
        return url.replace("127.0.0.1", NAME) if named else url

    def dead(self) -> None:
        for server in self.servers:
            server.kill()
            self._faults.callback(server.start)

    def silent(self) -> None:
        for server in self.servers:
            server.pause()
            self._faults.callback(server.resume)

    def black_hole(self) -> None:
        self.dead()
        for server in self.servers:
            self._faults.enter_context(black_hole(port=server.port))

    def slow_resolver(self) -> None:
        self.names.silent_for = 5.0
        self._faults.callback(setattr, self.names, "silent_for", 0.0)

    def half_dead(self) -> None:
        """The first address of two, a third of the cluster, or one sentinel of three."""
        if isinstance(self.group, Server):
            self.names.addresses = ("127.0.0.2", "127.0.0.1")
            self._faults.callback(setattr, self.names, "addresses", ("127.0.0.1",))
            self._faults.enter_context(black_hole("127.0.0.2", self.group.port))
        else:
            half = self.servers[0] if isinstance(self.group, Cluster) else self.group.sentinels[0]
            half.pause()
            self._faults.callback(half.resume)

    def heal(self) -> None:
        self._faults.close()
        if isinstance(self.group, Cluster):
            self.group.wait_until_whole()


FAULTS: dict[str, Callable[[Scene], None]] = {
    "dead": Scene.dead,
    "silent": Scene.silent,
    "black hole": Scene.black_hole,
    "slow resolver": Scene.slow_resolver,
    "half dead": Scene.half_dead,
}


@pytest.fixture(params=["single", "cluster", "sentinel"])
def scene(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    group: Server | Cluster | SentinelSet
    if request.param == "single":
        group = Server(tcp=True)
    else:
        coverage = ("--cluster-require-full-coverage", "no")
        group = Cluster(*coverage, replicas=False, node_timeout=60_000) if request.param == "cluster" else SentinelSet()
    names = Names("127.0.0.1")
    with group:
        if isinstance(group, SentinelSet):
            group.replica.kill()  # a primary that has just started would stand still to make a copy for it
            for sentinel in group.sentinels:  # what is away here is to come back, not to be replaced
                sentinel.command("SENTINEL", "SET", group.service, "down-after-milliseconds", 600_000)
        monkeypatch.setattr(socket, "getaddrinfo", names.getaddrinfo)
        yield Scene(group, names)


@pytest.mark.parametrize("way", ["threads", "asyncio"])
def test_nobody_waits_long_for_servers_that_are_away(scene, way, capsys, request):
    """Decisions stay within their deadlines under every fault, and servers that are back are found within a second."""
    kind = request.node.callspec.params["scene"]
    rows = [row(scene, kind, way, fault) for fault in FAULTS]
    with capsys.disabled():
        print(f"\n{'':32}{'first':>9}{'p99':>9}{'worst':>9}{'back':>9}{'degraded':>10}")
        for name, first, p99, worst, back, degraded in rows:
            print(f"{name:32}{first:9.3f}{p99:9.3f}{worst:9.3f}{back:9.3f}{degraded:10.0%}")
    for name, first, p99, worst, back, degraded in rows:
        assert first < CONNECT + 0.1 + BUSY, name
        assert worst < CONNECT + 0.1 + BUSY, name
        assert p99 < DEADLINE + 0.01 + BUSY, name
        assert back < 1.0 + 5 * BUSY, name
        assert degraded == 0 or "half dead" not in name or kind == "cluster", name


def row(scene: Scene, kind: str, way: str, fault: str) -> tuple[str, float, float, float, float, float]:
    url = scene.url(fault)
    with contextlib.ExitStack() as stack:
        before = stack.enter_context(Callers(way, url))
        time.sleep(0.3)
        mark = len(before.took)
        FAULTS[fault](scene)
        coming = [stack.enter_context(Callers(way, url)) for _ in range(2)]
        time.sleep(AWAY)
        answers = before.answers[mark:] + [answer for each in coming for answer in each.answers]
        took = before.took[mark:] + [took for each in coming for took in each.took]
        scene.heal()
        since = time.perf_counter()
        time.sleep(2.5)
    return (
        f"{kind}, {way}, {fault}",
        max(first for each in coming for first in each.firsts),
        percentile(took, 0.99),
        max(took),
        max(each.back(since) for each in (before, *coming)),
        [served for _, served in answers].count(False) / len(answers),
    )


@pytest.mark.parametrize("way", ["threads", "asyncio"])
def test_a_process_that_computes_takes_no_healthy_server_for_a_dead_one(way, capsys):
    """Eight threads that compute hold the interpreter for longer than the deadline, again and again."""
    stop = threading.Event()

    def compute() -> None:
        while not stop.is_set():
            sum(range(1000))

    computing = [threading.Thread(target=compute) for _ in range(8)]
    with Server() as server:
        for thread in computing:
            thread.start()
        with Callers(way, server.url) as callers:
            time.sleep(5.0)
        stop.set()
        for thread in computing:
            thread.join()
    degraded = [served for _, served in callers.answers].count(False)
    with capsys.disabled():
        print(f"\nbusy, {way}: {degraded} of {len(callers.answers)} degraded, p99 {percentile(callers.took, 0.99):.3f}")
    assert degraded == 0
