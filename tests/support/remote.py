"""What the tests of Redis stores have in common."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from headgate.stores import Store
from headgate.stores.redis import RedisStore
from headgate.testing import ManualClock, StoreSuite
from tests.support.servers import Server

KINDS = ["token-bucket", "fixed-window", "sliding-window", "sliding-window/6", "sliding-log"]


def patient(target: Any, clock: ManualClock | None = None, **options: Any) -> RedisStore:
    """A store with much time and no memory, so that every answer is a server's."""
    return RedisStore(
        target, clock=clock, **{"deadline": 5.0, "connect_timeout": 5.0, "remember_refusals": 0, **options}
    )


def asked(*servers: Server) -> int:
    """How many scripts they were told to run so far, all together, whether or not they did."""
    stats = [server.info("commandstats") for server in servers]
    each = [stat[name] for stat in stats for name in ("cmdstat_eval", "cmdstat_evalsha") if name in stat]
    return sum(one["calls"] + one["rejected_calls"] for one in each)


class Awaited:
    """A store whose bound limits are the awaited ones, waited for: for tests that know only the other kind."""

    def __init__(self, store: RedisStore, loop: asyncio.AbstractEventLoop) -> None:
        self._store, self.loop = store, loop
        self.clock, self.decides_by_clock = store.clock, store.decides_by_clock

    def bind(self, namespace: str, limits: Any) -> Any:
        bound = self._store.bind_async(namespace, limits)

        def wait_for(name: str) -> Callable[..., Any]:
            return lambda *asked: self.loop.run_until_complete(getattr(bound, name)(*asked))

        verbs = {name: staticmethod(wait_for(name)) for name in ("run", "give", "clear", "holders", "records")}
        return type("AwaitedLimits", (), {"limits": limits, **verbs})()

    def clear(self, namespace: str) -> None:
        self._store.clear(namespace)


@contextmanager
def awaited(store: RedisStore) -> Iterator[Awaited]:
    """With an event loop of its own; the store is closed in the end."""
    with asyncio.Runner() as runner:
        try:
            yield Awaited(store, runner.get_loop())
        finally:
            runner.run(store.aclose())


class RemoteSuite(StoreSuite):
    """The exported suite on real servers, by threads or by coroutines."""

    waits = False

    def empty(self) -> str:
        """Make the servers forget everything, and say where they are."""
        raise NotImplementedError

    @pytest.fixture(autouse=True)
    def _loop(self) -> Iterator[None]:
        self._opened: list[RedisStore] = []
        with asyncio.Runner() as runner:
            self._runner = runner
            yield
            self._close()

    def _close(self) -> None:
        while self._opened:
            self._runner.run(self._opened.pop().aclose())

    def store(self, clock: ManualClock) -> Store:
        """Close the earlier store, and open one on empty servers."""
        self._close()
        self._opened.append(patient(self.empty(), clock))
        store: Store = self._opened[0]
        return Awaited(self._opened[0], self._runner.get_loop()) if self.waits else store
