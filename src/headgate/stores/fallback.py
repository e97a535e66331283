"""The answers while a store cannot answer, by the limiter's `on_error`."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from headgate.algorithms import EXACT, pause
from headgate.caches import ClearedWhenFull
from headgate.engine import PEEK, Decision
from headgate.errors import InvalidLimit, StoreError
from headgate.limit import Limit
from headgate.stores.contract import BoundLimits, Costs, Keys, Marks, OnError, Store
from headgate.stores.placed import bind_placed
from headgate.wording import log_of

RETRY_US: Final = 1_000_000
"""The retry of a refusal by `on_error="deny"`, which no limit explains."""
STOPPED: Final = "the store cannot answer now: its files are gone, or a process that holds them is stopped"
MOST_SHARES: Final = 1024
"""The most limits whose shares stay bound to the local store."""


class Unbound:
    """Limits that the store could not bind: asked, they raise the reason, as a store does that is away."""

    def __init__(self, limits: tuple[Limit, ...], error: StoreError, fallback: Fallback) -> None:
        self.limits = limits
        self._error = error
        self._fallback = fallback

    def run(self, keys: Keys, costs: Costs, mode: int, wait: int) -> Decision:
        """Raise the reason."""
        raise self._error

    def answer(self, keys: Keys, costs: Costs, mode: int, wait: int) -> Decision:
        """Return the degraded decision, for a caller that asks no other store."""
        return self._fallback.decide(self.limits, keys, costs, mode, wait, self._error)


class Fallback:
    """Degraded answers. With `local`, each of a store's `nodes` admits its share of the limits."""

    def __init__(self, on_error: OnError, store: Store, namespace: str) -> None:
        self._on_error = on_error
        self._store = store
        self._namespace = namespace
        self._local: Store | None = None
        self._told = False
        self._shares: ClearedWhenFull[tuple[tuple[Limit, ...], int], BoundLimits] = ClearedWhenFull(MOST_SHARES)

    def decide(
        self, limits: tuple[Limit, ...], keys: Keys, costs: Costs, mode: int, wait: int, error: StoreError | None = None
    ) -> Decision:
        """Return the degraded decision, or raise the error if `on_error` is `raise`."""
        if self._on_error == "raise":
            raise error or StoreError(STOPPED)
        if self._on_error == "local":
            return self._decide_locally(limits, keys, costs, mode, wait)
        allowed = self._on_error == "allow"
        answers: list[int] = []
        for limit in limits:
            wait = 0 if allowed else RETRY_US
            answers += (allowed, limit.burst or EXACT if allowed else 0, wait, wait, 0, 0)  # a pause has no burst
        return Decision(limits, keys, costs, answers, charged=False, degraded=True)

    def unbound(self, limits: tuple[Limit, ...], error: StoreError) -> Unbound:
        """Return limits of one call that the store has no room for; the first such error is logged."""
        if self._on_error != "raise" and not self._told:
            self._told = True
            log_of("headgate").warning("on_error=%r answers for limits of a call: %s", self._on_error, error)
        return Unbound(limits, error, self)

    def regret(self, error: StoreError) -> None:
        """Report that units could not be given back: raise if `on_error` is `raise`, else log a warning."""
        if self._on_error == "raise":
            raise error
        log_of("headgate").warning("a refund was lost: %s", error)

    def kept(self, paused: Decision) -> None:
        """Log a warning if a pause was kept neither by the store nor in this process."""
        if paused.degraded and self._on_error != "local":
            log_of("headgate").warning("a pause was lost: the store cannot answer now")

    def give(self, limits: tuple[Limit, ...], keys: Keys, units: Costs, marks: Marks) -> None:
        """Give back units of a degraded decision."""
        self._share(limits).give(keys, units, marks)

    def _decide_locally(self, limits: tuple[Limit, ...], keys: Keys, costs: Costs, mode: int, wait: int) -> Decision:
        decision = self._share(limits).run(keys, costs, mode, wait)
        degraded = Decision(limits, keys, decision.costs, decision._answers, charged=mode != PEEK, degraded=True)
        # A rate stays charged; units in flight can be given back.
        each = zip(limits, degraded.costs, strict=True)
        degraded._claim_refund(tuple([0 if limit.in_flight else cost for limit, cost in each]))
        return degraded

    def _share(self, limits: tuple[Limit, ...]) -> BoundLimits:
        """Return this process's share of these limits, bound to the local store."""
        nodes: int = getattr(self._store, "nodes", 1)
        bound = self._shares.get((limits, nodes))
        if bound is None:
            shares = limits if nodes == 1 else tuple(share_of(limit, nodes) for limit in limits)
            local, namespace = self._open_local(), self._namespace
            bound = bind_placed(local.clock, namespace, shares, lambda placed: local.bind(namespace, placed))
            return self._shares.keep((limits, nodes), bound)
        return bound

    def _open_local(self) -> Store:
        if self._local is None:
            from headgate.stores.memory import MemoryStore

            own = self._store.clock if self._store.decides_by_clock else None
            self._local = getattr(self._store, "local", None) or MemoryStore(clock=own)
        return self._local


@lru_cache(maxsize=1024)
def share_of(limit: Limit, nodes: int) -> Limit:
    """Return the share of a limit that one of `nodes` processes may admit: rounded down, at least 1."""
    if limit.step is pause:
        return limit
    amount = max(1, limit.amount // nodes) if limit.amount else 0
    burst = None if limit.burst == limit.amount else max(1, limit.burst // nodes)
    try:
        return limit.replace(amount=amount, burst=burst)
    except InvalidLimit:  # too fine a fraction; an amount of two digits fits any period
        digits = 10 ** max(0, len(str(amount)) - 2)
        return limit.replace(amount=amount // digits * digits, burst=burst)
