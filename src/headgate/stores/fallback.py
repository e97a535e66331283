"""What is answered when the home of the state cannot: by the policy its limiter was given."""

from __future__ import annotations

from typing import Final

from headgate.call import Call
from headgate.clock import Clock
from headgate.engine import Decision
from headgate.engine.modes import PEEK, UP_TO
from headgate.errors import StoreError
from headgate.limit import Limit
from headgate.stores.contract import OnError
from headgate.stores.memory import MemoryStore

RETRY_US: Final = 1_000_000
"""When to come back after a denial that no limit explains."""


class Fallback:
    """Degraded answers."""

    def __init__(self, on_error: OnError, clock: Clock | None) -> None:
        self._on_error = on_error
        self._local = MemoryStore(clock=clock)

    def decide(
        self, limits: tuple[Limit, ...], keys: str | tuple[str, ...], costs: tuple[int, ...], mode: int
    ) -> Decision:
        """The answer to a decision that could not be taken."""
        if self._on_error == "raise":
            raise StoreError("the store cannot answer now: its files are gone, or a process that holds them is stopped")
        if self._on_error == "local":
            return self._decide_locally(limits, keys, costs, mode)
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

    def _decide_locally(
        self, limits: tuple[Limit, ...], keys: str | tuple[str, ...], costs: tuple[int, ...], mode: int
    ) -> Decision:
        gate = self._local.gate("local", limits)
        each = (keys,) * len(limits) if isinstance(keys, str) else keys
        if mode == UP_TO:
            decision = gate.take_up_to(each[0], costs[0])
        else:
            decision = gate.decide(*map(Call, limits, each, costs), peek=mode == PEEK)
        answers: list[int] = []
        for verdict in decision.verdicts:
            answers += (verdict.allowed, verdict.remaining, verdict.retry_us, verdict.reset_us, *verdict.mark)
        granted = tuple(call.cost for call in decision.calls)
        return Decision(limits, keys, granted, answers, charged=False, degraded=True)
