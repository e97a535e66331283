"""Rules that delay: how long a request is held, and which requests would be held for longer than their rule says.

What would be held for too long is refused by the store itself, in the step that charges all or none. So each limit of a
rule with `at_most` is asked as a bucket of another depth, one that a call of this cost reaches when its time is up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from headgate.algorithms import bucket
from headgate.algorithms.contract import Verdict
from headgate.caches import ClearedWhenFull
from headgate.engine import Decision
from headgate.limit import Limit

MOST_COSTS: Final = 1024
"""Combinations of costs whose limits are not made again."""


class Bounds:
    """Limits of one decision, of which some refuse what they would hold for longer than `at_most` microseconds.

    `at_most` is for each limit; 0 for one that has no such bound.
    """

    __slots__ = ("_askers", "_at_most", "_gate", "_limits")

    def __init__(self, gate: Any, limits: tuple[Limit, ...], at_most: tuple[int, ...]) -> None:  # noqa: ANN401
        self._gate = gate
        self._limits = limits
        self._at_most = at_most
        self._askers: ClearedWhenFull[tuple[int, ...], Callable[..., Any]] = ClearedWhenFull(MOST_COSTS, self._bounded)

    def ask(self, keys: tuple[str, ...], costs: tuple[int, ...]) -> Any:  # noqa: ANN401
        """A decision, or something to await for one."""
        return self._askers[costs](keys, costs)

    def _bounded(self, costs: tuple[int, ...]) -> Callable[..., Any]:
        each = zip(self._limits, self._at_most, costs, strict=True)
        bounded = tuple(limit._starting_within(most, cost) if most else limit for limit, most, cost in each)
        ask: Callable[..., Any] = self._gate.asker(bounded)
        return ask

    def as_written(self, decision: Decision) -> Decision:
        """The same decision over the limits as the rules have them, by which it is told and given back."""
        keys = tuple(call.key for call in decision.calls)
        return Decision(self._limits, keys, decision.costs, decision._answers, degraded=decision.degraded)


def held_for(limit: Limit, verdict: Verdict, cost: int, at_most_us: int) -> int:
    """How long a limit holds a request that it has let pass: until its place in the queue has come, in microseconds.

    What costs nothing is never refused. So its wait alone is cut short.
    """
    delay_us = bucket.departs(bucket.Params(*limit.params), verdict, cost)
    return min(delay_us, at_most_us or delay_us)
