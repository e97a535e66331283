"""Control limits in tests: freeze them, reset them, disable them, or let them refuse."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, cast

from headgate.algorithms import EXACT, NEVER
from headgate.clock import SECOND, SystemClock
from headgate.engine import TAKE, Decision
from headgate.errors import InvalidCall
from headgate.limit import Limit
from headgate.stores import Costs, Held, Keys, Marks, MemoryStore, Record, Store
from headgate.testing.clock import ManualClock
from headgate.wording import shown


class AnyLimiter(Protocol):
    """A limiter, a shaper, or the runtime of an edge."""

    store: Store

    @property
    def namespace(self) -> str:
        """The namespace of its states."""
        ...

    def _use(self, store: Store) -> None: ...


class AnyEdge(Protocol):
    """The extension, the middleware or the interceptor of an app."""

    @property
    def _runtime(self) -> AnyLimiter: ...


Limited = AnyLimiter | AnyEdge


@contextmanager
def frozen(*limiters: Limited) -> Iterator[ManualClock]:
    """Run the limiters on new states and on one manual clock, which starts at the current time."""
    clock = ManualClock(SystemClock().now_us() / 1e6)
    with _bound(limiters, MemoryStore(clock=clock)):
        yield clock


@contextmanager
def disabled(*limiters: Limited) -> Iterator[None]:
    """Let the limiters admit every request and count nothing."""
    with _bound(limiters, _OpenStore()):
        yield


@contextmanager
def refusing(*limiters: Limited, retry_after: float = 1.0) -> Iterator[None]:
    """Let the limiters refuse every request, with this wait in seconds; `math.inf` means never. No caller waits."""
    if isinstance(retry_after, bool) or not isinstance(retry_after, int | float) or not retry_after > 0:
        raise InvalidCall(f"retry_after is a number of seconds above 0, or math.inf; got {shown(retry_after)}")
    with _bound(limiters, _ClosedStore(NEVER if math.isinf(retry_after) else round(retry_after * SECOND))):
        yield


def reset_all(*limiters: Limited) -> None:
    """Clear the limiters' namespaces in their stores."""
    for limiter in map(_counting, limiters):
        limiter.store.clear(limiter.namespace)


@contextmanager
def _bound(given: tuple[Limited, ...], store: Store) -> Iterator[None]:
    limiters = [_counting(each) for each in given]
    homes = [limiter.store for limiter in limiters]
    try:
        for limiter in limiters:
            limiter._use(store)
        yield
    finally:
        for limiter, home in zip(limiters, homes, strict=True):
            limiter._use(home)


def _counting(limited: Limited) -> AnyLimiter:
    """Return the limiter itself, or the runtime of an edge; an extension of several apps uses the current app's."""
    counting: AnyLimiter = getattr(limited, "_runtime", cast("AnyLimiter", limited))
    if not hasattr(counting, "_use"):
        what = "a limiter, a shaper, or the middleware, interceptor or RateLimits of an app"
        raise InvalidCall(f"limits are those of {what}; got {shown(limited)}")
    return counting


class _OpenStore:
    """A store without states: it counts nothing and admits every request."""

    clock = SystemClock()
    decides_by_clock = True
    admits_all = True
    """The load shedder of an edge on this store is not asked."""

    def bind(self, namespace: str, limits: tuple[Limit, ...]) -> _OpenLimits:
        return _OpenLimits(limits)

    def clear(self, namespace: str) -> None:
        """Do nothing: there are no states."""


class _ClosedStore:
    """A store without states that refuses every request."""

    clock = SystemClock()
    decides_by_clock = True
    refuses_all = True
    """A caller that waits at a limiter on this store would wait for ever, so it is refused."""

    def __init__(self, retry_us: int) -> None:
        self._retry_us = retry_us

    def bind(self, namespace: str, limits: tuple[Limit, ...]) -> _ClosedLimits:
        return _ClosedLimits(limits, self._retry_us)

    def clear(self, namespace: str) -> None:
        """Do nothing: there are no states."""


class _OpenLimits:
    def __init__(self, limits: tuple[Limit, ...]) -> None:
        self.limits = limits

    def run(self, keys: Keys, costs: Costs, mode: int = TAKE, wait: int = 0) -> Decision:
        answers = [field for limit in self.limits for field in (True, limit.burst or EXACT, 0, 0, 0, 0)]
        return Decision(self.limits, keys, costs, answers, charged=False)

    def give(self, keys: Keys, units: Costs, marks: Marks) -> None:
        """Do nothing: nothing was charged."""

    def clear(self, key: str) -> None:
        """Do nothing: there are no states."""

    def holders(self, key: str) -> list[Held]:
        return []

    def records(self, key: str) -> list[Record]:
        return [(0, ())] * len(self.limits)


class _ClosedLimits(_OpenLimits):
    def __init__(self, limits: tuple[Limit, ...], retry_us: int) -> None:
        super().__init__(limits)
        self._retry_us = retry_us

    def run(self, keys: Keys, costs: Costs, mode: int = TAKE, wait: int = 0) -> Decision:
        retry = self._retry_us
        answers = [field for _ in self.limits for field in (False, 0, retry, max(0, retry), 0, 0)]
        return Decision(self.limits, keys, costs, answers, charged=False)
