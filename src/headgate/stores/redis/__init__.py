"""States in Redis or Valkey: one limit for a fleet, exact and atomic, in one round trip for each decision.

`RedisStore("redis://cache:6379")`; also `rediss://`, `unix://`, `redis+cluster://`, `redis+sentinel://`, the `valkey`
spellings of each, or a ready redis-py client. Scripts on the server decide, by the server's clock.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

from headgate.clock import SECOND, Clock, SystemClock
from headgate.engine import TAKE, read_clock
from headgate.errors import StoreError
from headgate.forks import after_fork
from headgate.limit import Limit
from headgate.steps import running_loop
from headgate.stores.breaker import Transition
from headgate.stores.contract import Store
from headgate.stores.health import HealthReport
from headgate.stores.leases.terms import Lease, checked_terms
from headgate.stores.options import checked_pepper, local_store, read_options
from headgate.stores.redis.bound import BoundLimits, Space
from headgate.stores.redis.bound_async import AsyncBoundLimits
from headgate.stores.redis.compiled import Command, CompiledLimits
from headgate.stores.redis.connect import Connector, Timeouts
from headgate.stores.redis.leased import AsyncLeasedLimits, LeasedLimits
from headgate.stores.redis.library import FAILURES, MovedError
from headgate.stores.redis.names import Names
from headgate.stores.redis.node import Node
from headgate.stores.redis.pipeline import Pipelines
from headgate.stores.redis.refusal_cache import RefusalCache
from headgate.stores.redis.renewal import PermitRenewal
from headgate.stores.redis.topology import Topology
from headgate.stores.redis.url import DEFAULTS, EXAMPLE, OPTIONS, read_client, read_url
from headgate.wording import explained

__all__ = ["RedisStore", "Transition"]

Leased = TypeVar("Leased", "LeasedLimits", "AsyncLeasedLimits")


class RedisStore:
    """A store on a server, which a fleet shares.

    `deadline` (0.05): seconds a decision may take; later, the limiter's `on_error` answers. `connect_timeout` (0.25):
    seconds to make a connection. `remember_refusals` (1): the most seconds for which a refused key is refused without
    asking the server; 0 for never. `nodes` (1): the number of processes that share a limit while the server is away.
    All four may be options of the URL instead. `local`: the store that answers while the server is away, if `on_error`
    is `"local"`. `pepper`: a secret of the fleet, without which key names cannot be computed. `on_transition`: called
    with a `Transition` when a server goes away or comes back. `clock`: for tests, in place of the server's clock.
    """

    @explained
    def __init__(
        self,
        url: str | Any,  # noqa: ANN401 - or one of redis-py's clients
        *,
        deadline: float | None = None,
        connect_timeout: float | None = None,
        remember_refusals: float | None = None,
        nodes: int | None = None,
        local: Store | str | None = None,
        pepper: bytes = b"",
        on_transition: Callable[[Transition], None] | None = None,
        clock: Clock | None = None,
    ) -> None:
        given = {
            "deadline": deadline, "connect_timeout": connect_timeout, "remember_refusals": remember_refusals,
            "nodes": nodes,
        }  # fmt: skip
        url, in_url = read_options(url, DEFAULTS, OPTIONS, EXAMPLE) if isinstance(url, str) else (url, DEFAULTS)
        options = in_url.with_arguments(given)
        self._pepper = checked_pepper(pepper)
        self.nodes = self._least_nodes = options.nodes
        """The number of processes that share a limit while the server is away."""
        self._clock = clock
        self._waiting_clock = clock or SystemClock()
        self._remember_us = round(options.remember_refusals * SECOND)
        self.local = local_store(local, clock)
        """The store that answers while the server is away."""
        described = read_url(url) if isinstance(url, str) else read_client(url)
        connector = Connector(described, Timeouts(options.deadline, options.connect_timeout))
        self._probing = CompiledLimits((Limit.parse("1000/second"),), Names("headgate probe", pepper))
        self._topology = Topology(connector, self._probe, on_transition)
        self._renewal = PermitRenewal(self._topology, None if clock is None else self._now_us)
        self._pipelines: dict[int, Pipelines] = {}
        self._refusals: dict[str, RefusalCache] = {}
        self._leased: weakref.WeakKeyDictionary[LeasedLimits | AsyncLeasedLimits, str] = weakref.WeakKeyDictionary()
        after_fork(self._after_fork)

    def bind(self, namespace: str, limits: tuple[Limit, ...]) -> BoundLimits:
        """Bind limits to their states under a namespace."""
        return BoundLimits(self._space(namespace), limits)

    def bind_async(self, namespace: str, limits: tuple[Limit, ...]) -> AsyncBoundLimits:
        """Bind limits for event loops."""
        return AsyncBoundLimits(self._space(namespace), limits, self._running_pipelines)

    def bind_leased(self, namespace: str, limits: tuple[Limit, ...], terms: Lease | bool) -> LeasedLimits:
        """Bind limits whose tokens are charged in advance."""
        return self._lease(LeasedLimits(self._space(namespace), limits), namespace, terms)

    def bind_leased_async(self, namespace: str, limits: tuple[Limit, ...], terms: Lease | bool) -> AsyncLeasedLimits:
        """Bind limits for event loops, whose tokens are charged in advance."""
        bound = AsyncLeasedLimits(self._space(namespace), limits, self._running_pipelines)
        return self._lease(bound, namespace, terms)

    def _lease(self, bound: Leased, namespace: str, terms: Lease | bool) -> Leased:
        bound.lease(checked_terms(terms, bound.limits), self._clock, self._saw_nodes)
        self._leased[bound] = namespace
        return bound

    def _saw_nodes(self, count: int) -> int:
        self.nodes = max(self._least_nodes, count)
        return self.nodes

    @property
    def decides_by_clock(self) -> bool:
        """Whether a clock was given, which only tests do; otherwise the server's clock decides."""
        return self._clock is not None

    def health(self) -> HealthReport:
        """Return whether all servers are there, the number of failures, and the times of commands."""
        return self._topology.health.report(self._topology.up)

    @property
    def clock(self) -> Clock:
        """The clock for waiting; decisions use the server's clock."""
        return self._waiting_clock

    def clear(self, namespace: str) -> None:
        """Forget every key of a namespace. This scans every key of the server: for tests and repairs."""
        self._refusals_of(namespace).gave_all()
        self._renewal.drop_all(namespace)
        for bound in [bound for bound, its in self._leased.items() if its == namespace]:
            bound.forget_leases()
        pattern = Names(namespace, self._pepper).pattern
        try:
            if self._topology.clustered:
                self._topology.find()
            for node in self._topology.all():
                cursor = b"0"
                while True:
                    cursor, found = node.command(b"SCAN", cursor, b"MATCH", pattern, b"COUNT", 1000)
                    for name in found:
                        node.command(b"DEL", name)
                    if cursor == b"0":
                        break
        except FAILURES as error:
            raise StoreError(f"the namespace was not cleared: {type(error).__name__}: {error}") from error

    def close(self) -> None:
        """Close the connections of threads; permits are not renewed. A store that is used again connects again."""
        self._renewal.close()
        self._topology.close()

    async def aclose(self) -> None:
        """Close the connections of threads and of this event loop."""
        pipelines = self._pipelines.pop(id(running_loop()), None)
        if pipelines is not None:
            await pipelines.close()
        self.close()

    def _space(self, namespace: str) -> Space:
        now_us = None if self._clock is None else self._now_us
        names = Names(namespace, self._pepper)
        return Space(names, self._topology, self._refusals_of(namespace), now_us, self._renewal)

    def _refusals_of(self, namespace: str) -> RefusalCache:
        now_us = _monotonic_us if self._clock is None else self._now_us
        return self._refusals.setdefault(namespace, RefusalCache(self._remember_us, now_us))

    def _now_us(self) -> int:
        assert self._clock is not None  # noqa: S101 - only called with a clock
        return read_clock(self._clock)

    def _running_pipelines(self) -> Pipelines:
        loop = running_loop()
        pipelines = self._pipelines.get(id(loop))
        if pipelines is None or pipelines.loop is not loop:
            self._pipelines = {key: each for key, each in self._pipelines.items() if not each.loop.is_closed()}
            pipelines = self._pipelines[id(loop)] = Pipelines(self._topology, loop)
        return pipelines

    def _probe(self, node: Node) -> None:
        """Make a decision as a test: the server must be able to run a script, to write and to answer."""
        compiled = self._probing
        subject = compiled.names.subject("probe")
        command = Command(compiled, TAKE, subject, compiled.keys(subject), compiled.argument((1,)), None)
        command.whole = True
        reply = node.ask(command.encode())
        if isinstance(reply, Exception) and not isinstance(reply, MovedError):
            raise reply

    def _after_fork(self) -> None:
        self._abandoned = self._pipelines  # kept, since closing them would touch the parent's event loop
        self._pipelines = {}
        self._topology.forget()
        self._renewal.forget()


def _monotonic_us() -> int:
    return time.monotonic_ns() // 1000
