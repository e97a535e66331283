"""What is answered when the home of the state cannot: by the policy its limiter was given."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from headgate.call import Call
from headgate.clock import Clock
from headgate.engine import Decision
from headgate.engine.modes import PEEK, UP_TO
from headgate.errors import InvalidLimit, StoreError
from headgate.limit import Limit
from headgate.stores.contract import OnError, Store
from headgate.stores.memory import MemoryStore
from headgate.wording import log_of

RETRY_US: Final = 1_000_000
"""When to come back after a denial that no limit explains."""
STOPPED: Final = "its files are gone, or a process that holds them is stopped"


class Fallback:
    """Degraded answers. Locally, each of `nodes` lets its share of the limits pass."""

    def __init__(
        self,
        on_error: OnError,
        clock: Clock | None,
        *,
        store: Store | None = None,
        namespace: str = "local",
        nodes: int = 1,
    ) -> None:
        self._on_error = on_error
        self._local = store or MemoryStore(clock=clock)
        self._namespace = namespace
        self.nodes = nodes

    def decide(
        self,
        limits: tuple[Limit, ...],
        keys: str | tuple[str, ...],
        costs: tuple[int, ...],
        mode: int,
        wait: int = 0,
        reason: str = STOPPED,
    ) -> Decision:
        """The answer to a decision that could not be taken."""
        if self._on_error == "raise":
            raise StoreError(f"the store cannot answer now: {reason}")
        if self._on_error == "local":
            return self._decide_locally(limits, keys, costs, mode, wait)
        allowed = self._on_error == "allow"
        answers: list[int] = []
        for limit in limits:
            answers += (
                allowed,
                limit.burst if allowed else 0,
                0 if allowed else RETRY_US,
                0 if allowed else RETRY_US,
                0,
                0,
            )
        return Decision(limits, keys, costs, answers, charged=False, degraded=True)

    def regret(self, reason: str) -> None:
        """Something could not be given back: an error for who asked for errors, else a line in the log."""
        if self._on_error == "raise":
            raise StoreError(f"the store could not be told what to give back: {reason}")
        log_of("headgate").warning("a refund was lost: %s", reason)

    def _shares(self, limits: tuple[Limit, ...]) -> tuple[Limit, ...]:
        return limits if self.nodes == 1 else tuple(share_of(limit, self.nodes) for limit in limits)

    def _decide_locally(
        self, limits: tuple[Limit, ...], keys: str | tuple[str, ...], costs: tuple[int, ...], mode: int, wait: int
    ) -> Decision:
        shares = self._shares(limits)
        gate = self._local.gate(self._namespace, shares)
        each = (keys,) * len(limits) if isinstance(keys, str) else keys
        if mode == UP_TO:
            decision = gate.take_up_to(each[0], costs[0])
        else:
            decision = gate.decide(*map(Call, shares, each, costs), peek=mode == PEEK, wait_us=wait)
        answers: list[int] = []
        for verdict in decision.verdicts:
            answers += (verdict.allowed, verdict.remaining, verdict.retry_us, verdict.reset_us, *verdict.mark)
        granted = tuple(call.cost for call in decision.calls)
        degraded = Decision(limits, keys, granted, answers, charged=mode != PEEK, degraded=True)
        # What a rate let pass stays so; what is in flight comes back.
        degraded.claim_refund(tuple(0 if call.limit.in_flight else call.cost for call in decision.calls))
        return degraded

    def give(
        self,
        limits: tuple[Limit, ...],
        keys: tuple[str, ...],
        units: tuple[int, ...],
        marks: tuple[tuple[int, int] | None, ...],
    ) -> None:
        """Give back what was decided here."""
        shares = self._shares(limits)
        answers = [number for mark in marks for number in (1, 0, 0, 0, *(mark or (0, 0)))]
        self._local.gate(self._namespace, shares).refund(Decision(shares, keys, units, answers), units)


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
