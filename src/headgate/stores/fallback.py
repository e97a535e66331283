"""What is answered when the home of the state cannot: by the policy its limiter was given."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from headgate.engine import Decision
from headgate.engine.modes import PEEK
from headgate.errors import InvalidLimit, StoreError
from headgate.limit import Limit
from headgate.stores.contract import BoundLimits, Costs, Keys, Marks, OnError, Store
from headgate.wording import log_of

RETRY_US: Final = 1_000_000
"""When to come back after a denial that no limit explains."""
STOPPED: Final = "the store cannot answer now: its files are gone, or a process that holds them is stopped"
MOST_SHARES: Final = 1024
"""Limits whose shares stay bound to the local store."""


class Fallback:
    """Degraded answers. Locally, each of a store's `nodes` lets its share of the limits pass."""

    def __init__(self, on_error: OnError, store: Store, namespace: str) -> None:
        self._on_error = on_error
        self._store = store
        self._namespace = namespace
        self._local: Store | None = None
        self._shares: dict[tuple[tuple[Limit, ...], int], BoundLimits] = {}

    def decide(
        self, limits: tuple[Limit, ...], keys: Keys, costs: Costs, mode: int, wait: int, error: StoreError | None = None
    ) -> Decision:
        """The answer to a decision that could not be taken; or the error, for callers who asked for errors."""
        if self._on_error == "raise":
            raise error or StoreError(STOPPED)
        if self._on_error == "local":
            return self._decide_locally(limits, keys, costs, mode, wait)
        allowed = self._on_error == "allow"
        answers: list[int] = []
        for limit in limits:
            wait = 0 if allowed else RETRY_US
            answers += (allowed, limit.burst if allowed else 0, wait, wait, 0, 0)
        return Decision(limits, keys, costs, answers, charged=False, degraded=True)

    def regret(self, error: StoreError) -> None:
        """Something could not be given back: an error for callers who asked for errors, else a line in the log."""
        if self._on_error == "raise":
            raise error
        log_of("headgate").warning("a refund was lost: %s", error)

    def give(self, limits: tuple[Limit, ...], keys: Keys, units: Costs, marks: Marks) -> None:
        """Give back what was decided here."""
        self._share(limits).give(keys, units, marks)

    def _decide_locally(self, limits: tuple[Limit, ...], keys: Keys, costs: Costs, mode: int, wait: int) -> Decision:
        decision = self._share(limits).run(keys, costs, mode, wait)
        degraded = Decision(limits, keys, decision.costs, decision._answers, charged=mode != PEEK, degraded=True)
        # What a rate let pass stays so; what is in flight comes back.
        degraded._claim_refund(tuple(0 if call.limit.in_flight else call.cost for call in decision.calls))
        return degraded

    def _share(self, limits: tuple[Limit, ...]) -> BoundLimits:
        """The part of these limits that this process counts, in the local store."""
        nodes: int = getattr(self._store, "nodes", 1)
        bound = self._shares.get((limits, nodes))
        if bound is None:
            if len(self._shares) >= MOST_SHARES:
                self._shares.clear()
            shares = limits if nodes == 1 else tuple(share_of(limit, nodes) for limit in limits)
            bound = self._shares[limits, nodes] = self._open_local().bind(self._namespace, shares)
        return bound

    def _open_local(self) -> Store:
        if self._local is None:
            from headgate.stores.memory import MemoryStore

            own = self._store.clock if self._store.decides_by_clock else None
            self._local = getattr(self._store, "local", None) or MemoryStore(clock=own)
        return self._local


@lru_cache(maxsize=1024)
def share_of(limit: Limit, nodes: int) -> Limit:
    """The part of a limit that one of so many nodes may let pass: rounded down, at least 1."""
    amount = max(1, limit.amount // nodes)
    burst = None if limit.burst == limit.amount else max(1, limit.burst // nodes)
    try:
        return limit.replace(amount=amount, burst=burst)
    except InvalidLimit:  # too fine a fraction: two digits are fine for any rate
        digits = 10 ** max(0, len(str(amount)) - 2)
        return limit.replace(amount=amount // digits * digits, burst=burst)
