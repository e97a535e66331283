"""Limits in other people's tests: freeze them, forget them, switch them off."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from headgate.call import Call, Cost, checked_cost, checked_costs, checked_key
from headgate.clock import SystemClock
from headgate.engine import Decision
from headgate.engine.holding import Holding
from headgate.limit import Given, Limit, as_limits
from headgate.stores import MemoryStore, OnError, Store
from headgate.testing.clock import ManualClock


class AnyLimiter(Protocol):
    """A limiter, or the runtime of an app."""

    store: Store

    @property
    def namespace(self) -> str:
        """Under which it counts."""
        ...

    def bind(self, store: Store) -> None:
        """Decide by the states of this store from now on."""
        ...


@contextmanager
def frozen(*limiters: AnyLimiter) -> Iterator[ManualClock]:
    """Run the limiters on fresh states and one clock that starts at the present and moves only when told to."""
    clock = ManualClock(SystemClock().now_us() / 1e6)
    with _bound(limiters, MemoryStore(clock=clock)):
        yield clock


@contextmanager
def disabled(*limiters: AnyLimiter) -> Iterator[None]:
    """Let everything pass, and count nothing."""
    with _bound(limiters, _OpenStore()):
        yield


def reset_all(*limiters: AnyLimiter) -> None:
    """Forget every key of the limiters' namespaces in their stores."""
    for limiter in limiters:
        limiter.store.clear(limiter.namespace)


@contextmanager
def _bound(limiters: tuple[AnyLimiter, ...], store: Store) -> Iterator[None]:
    homes = [limiter.store for limiter in limiters]
    try:
        for limiter in limiters:
            limiter.bind(store)
        yield
    finally:
        for limiter, home in zip(limiters, homes, strict=True):
            limiter.bind(home)


class _OpenStore:
    """Has no states: every key is as new, and stays so."""

    clock = SystemClock()
    decides_by_clock = True

    def gate(self, namespace: str, limits: tuple[Limit, ...], on_error: OnError = "local") -> _OpenGate:
        return _OpenGate(limits)

    def clear(self, namespace: str) -> None:
        """There is nothing to forget."""


class _OpenGate:
    def __init__(self, limits: tuple[Limit, ...]) -> None:
        self._limits = limits

    def hit(self, key: str, cost: Cost = 1, *, limit: Given | None = None) -> Decision:
        limits = self._limits if limit is None else as_limits(limit)
        return _allowed(limits, checked_key(key), checked_costs(limits, cost))

    peek = hit

    def take_up_to(self, key: str, n: int, *, limit: Given | None = None) -> Decision:
        return self.hit(key, checked_cost(n), limit=limit)

    def reserve(self, key: str, cost: Cost, wait: int, limit: Given | None = None) -> Decision:
        return self.hit(key, cost, limit=limit)

    def asker(self, limits: tuple[Limit, ...]) -> Callable[[tuple[str, ...], tuple[int, ...]], Decision]:
        return lambda keys, costs: _allowed(limits, keys, costs)

    def decide(self, *calls: Call, peek: bool = False, wait_us: int = 0) -> Decision:
        limits, keys, costs = zip(*((call.limit, call.key, call.cost) for call in calls), strict=True)
        return _allowed(limits, keys, costs)

    def refund(self, charged: Decision | str, n: Cost | tuple[int, ...] | None = None) -> None:
        """Nothing was charged."""

    def release(self, decision: Decision) -> None:
        """Nothing is held."""

    def holders(self, key: str) -> list[Holding]:
        return []

    def reset(self, key: str) -> None:
        """Every key is as new."""


def _allowed(limits: tuple[Limit, ...], keys: str | tuple[str, ...], costs: tuple[int, ...]) -> Decision:
    answers = [field for limit in limits for field in (True, limit.burst, 0, 0, 0, 0)]
    return Decision(limits, keys, costs, answers, charged=False)
