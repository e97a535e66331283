"""What the tests of leases have in common: a bank that sells tokens, by a clock of its own, and its books."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from headgate import AsyncLimiter, Lease, Limiter
from headgate.stores.redis import RedisStore
from headgate.testing import ManualClock
from tests.support.faults import PATIENT
from tests.support.inside_leases import ledger_of
from tests.support.servers import Server, wait_until

MOST = 3000
BUCKET = f"1/hour burst {MOST}"
WINDOW = f"{MOST}/hour by fixed-window"
SLIDING = f"{MOST}/hour by sliding-window"
SLOTS = f"{MOST}/hour by sliding-window/60"
EVERY_KIND = pytest.mark.parametrize(
    "limit", [BUCKET, WINDOW, SLIDING, SLOTS], ids=["bucket", "window", "sliding", "slots"]
)
START = 1e9
"""800 seconds before the end of an hour."""

MANY = 100_000
"""More hits than any limit here admits."""

BEFORE_LOW = 22
"""Hits after which the next one finds its lease low, keeps 4 tokens and buys 80: while the clock stands still."""

Run = Callable[[Coroutine[Any, Any, Any]], Any]


class Awaited:
    """An `AsyncLimiter`, waited for: its loop runs only while something is asked."""

    def __init__(self, limiter: AsyncLimiter, run: Run) -> None:
        self.limiter, self._run = limiter, run

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self.limiter, "aclose" if name == "close" else name)
        return lambda *given, **named: self._run(verb(*given, **named))

    def hits(self, key: str, cost: int, most: int, until_refused: bool) -> int:
        """Hit in one run of the loop, which goes on between two hits; how many were admitted."""

        async def each() -> int:
            admitted = 0
            for _ in range(most):
                allowed = (await self.limiter.hit(key, cost)).allowed
                if until_refused and not allowed:
                    break
                admitted += allowed
                await asyncio.sleep(0)
            return admitted

        return int(self._run(each()))


class Bank:
    """A store on an emptied server; time moves when `clock` is told to."""

    def __init__(self, server: Server, run: Run | None = None, url: str = "", **options: Any) -> None:
        self.server, self._run = server, run
        self.clock = ManualClock(START)
        self.store = RedisStore(url or server.url, clock=self.clock, **{"deadline": PATIENT, **options})
        self._auditor = RedisStore(server.url, clock=self.clock, deadline=PATIENT, remember_refusals=0)

    def limiter(self, *limits: str, lease: Lease | bool = True, **options: Any) -> Any:
        """One that leases; unless told otherwise what goes wrong is an error."""
        options = {"store": self.store, "on_error": "raise", "lease": lease, **options}
        if self._run is None:
            return Limiter(*limits or (BUCKET,), **options)
        return Awaited(AsyncLimiter(*limits or (BUCKET,), **options), self._run)

    def plain(self, *limits: str, **options: Any) -> Limiter:
        """One that does not lease, of another node."""
        return Limiter(*limits or (BUCKET,), store=self._auditor, on_error="raise", **options)

    def charged(self, limit: str = BUCKET, key: str = "k", **options: Any) -> int:
        """What the server holds against the key now."""
        seen = self.plain(limit, **options).peek(key, 0)
        return int(seen.limit - seen.remaining)

    def trips(self) -> int:
        """Scripts that the server has run so far: without the heartbeat, and without those it did not know."""
        stats = self.server.info("commandstats")
        none = {"calls": 0, "failed_calls": 0}
        run = [stats.get(f"cmdstat_{name}", none) for name in ("eval", "evalsha")]
        return int(sum(one["calls"] - one["failed_calls"] for one in run) - stats.get("cmdstat_zadd", none)["calls"])

    @contextmanager
    def asked(self, times: int) -> Iterator[None]:
        """The server runs exactly so many scripts for what is inside."""
        before = self.trips()
        yield
        assert self.trips() - before == times

    def unspent(self, limiter: Any, key: str = "k", most: int = 100_000) -> int:
        """How many hits more are answered without asking; they are spent then."""
        before = self.trips()
        for count in range(most):
            limiter.hit(key)
            if self.trips() > before:
                return count
        return most

    def until(self, true: Callable[[], object], what: str) -> None:
        """Let what is under way go on until then, and a moment longer."""

        def seen() -> object:
            if self._run is not None:
                self._run(asyncio.sleep(0.01))
            return true()

        wait_until(seen, what)
        seen()

    def close(self) -> None:
        if self._run is not None:
            self._run(self.store.aclose())
        self.store.close()
        self._auditor.close()


@contextmanager
def open_bank(server: Server, kind: str = "threads", **options: Any) -> Iterator[Bank]:
    """For threads, or with an event loop of its own."""
    with asyncio.Runner() as runner:
        bank = Bank(server, None if kind == "threads" else runner.get_loop().run_until_complete, **options)
        try:
            yield bank
        finally:
            bank.close()


def warm(limiter: Any, key: str = "k", hits: int = 50) -> int:
    """Make a key hot, so that some tokens are held when this returns; how many were admitted."""
    if isinstance(limiter, Awaited):
        return limiter.hits(key, 1, hits, until_refused=False)
    return sum(limiter.hit(key).allowed for _ in range(hits))


def drain(limiter: Any, key: str = "k", cost: int = 1) -> int:
    """Hit until refused; how many were admitted."""
    if isinstance(limiter, Awaited):
        admitted = limiter.hits(key, cost, MANY, until_refused=True)
        assert admitted < MANY, "never refused"
        return admitted
    for admitted in range(MANY):
        if not limiter.hit(key, cost):
            return admitted
    raise AssertionError("never refused")


def held(limiter: Any, key: str = "k") -> int:
    """Permits that this limiter may still spend without asking."""
    ledger = ledger_of(limiter.limiter if isinstance(limiter, Awaited) else limiter)
    return sum(ledger.tokens(ledger.grants(key)))
