"""Threads that ask one server together, and a proxy that decides when they are answered."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

from headgate import Limiter
from headgate.engine import Decision
from tests.support.faults import MANY, open_store
from tests.support.inside import senders_of
from tests.support.proxy import Proxy
from tests.support.servers import wait_until

OTHERS = 15
"""The threads that wait for the first one."""
LEFT = [10_000 - (number + 1) for number in range(OTHERS + 1)]
"""What the costs of all threads leave."""


class Crowd:
    """A thread whose command is at the server, and others that wait for it; the proxy holds the replies."""

    def __init__(self, limiter: Limiter, proxy: Proxy, pool: ThreadPoolExecutor) -> None:
        self.limiter, self.proxy, self.pool = limiter, proxy, pool
        self.senders = senders_of(limiter.store)
        assert not limiter.hit("warm").degraded
        proxy.hold()
        self.asked = proxy.requests
        self.first = self.ask(0)
        wait_until(lambda: proxy.requests > self.asked, "the first command is at the server")

    def ask(self, number: int) -> Future[Decision]:
        """Each thread has a key and a cost of its own, so that the answer of another thread would be noticed."""
        return self.pool.submit(self.limiter.hit, f"key {number}", number + 1)

    def gather(self, count: int = OTHERS) -> list[Future[Decision]]:
        waiting = len(self.senders.waiting)
        others = [self.ask(number) for number in range(1, count + 1)]
        wait_until(lambda: len(self.senders.waiting) == waiting + count, "the others wait")
        return others


@contextmanager
def crowd(proxy: Proxy, **options) -> Iterator[Crowd]:
    patient = {"deadline": 60.0, "connect_timeout": 60.0, **options}
    with open_store(proxy.url, **patient) as store, ThreadPoolExecutor(OTHERS + 2) as pool:
        yield Crowd(Limiter(MANY, store=store), proxy, pool)


def answers(futures: list[Future[Decision]]) -> list[int]:
    """What is left of each key; -1 where the server did not answer."""
    decisions = [future.result(60) for future in futures]
    return [-1 if decision.degraded else decision.remaining for decision in decisions]
