"""Rules that delay: the time that a request is held, and the refusal of requests that would exceed `at_most`.

The store itself refuses a request that would be held too long, in the step that charges all limits or none. So each
limit of a rule with `at_most` is asked as a bucket of another depth, which a call of this cost fills at that time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from headgate.algorithms import Verdict, bucket
from headgate.caches import ClearedWhenFull
from headgate.engine import Decision
from headgate.limit import Limit

MOST_COSTS: Final = 1024
"""The most combinations of costs whose limits are cached."""


class Bounds:
    """Limits of one decision; some refuse a request that they would hold for longer than `at_most` microseconds.

    `at_most` has a value for each limit; 0 for no bound.
    """

    __slots__ = ("_askers", "_at_most", "_gate", "_limits")

    def __init__(self, gate: Any, limits: tuple[Limit, ...], at_most: tuple[int, ...]) -> None:  # noqa: ANN401
        self._gate = gate
        self._limits = limits
        self._at_most = at_most
        self._askers: ClearedWhenFull[tuple[int, ...], Callable[..., Any]] = ClearedWhenFull(MOST_COSTS, self._bounded)

    def ask(self, keys: tuple[str, ...], costs: tuple[int, ...]) -> Any:  # noqa: ANN401
        """Return a decision, or an awaitable of one."""
        return self._askers[costs](keys, costs)

    def _bounded(self, costs: tuple[int, ...]) -> Callable[..., Any]:
        each = zip(self._limits, self._at_most, costs, strict=True)
        bounded = tuple(limit._starting_within(most, cost) if most else limit for limit, most, cost in each)
        ask: Callable[..., Any] = self._gate.asker(bounded)
        return ask

    def as_written(self, decision: Decision) -> Decision:
        """Return the same decision over the limits of the rules, as headers and refunds need them."""
        keys = tuple(call.key for call in decision.calls)
        return Decision(self._limits, keys, decision.costs, decision._answers, degraded=decision.degraded)


def held_for(limit: Limit, verdict: Verdict, cost: int, at_most_us: int) -> int:
    """Return for how many microseconds a limit holds a request that it has admitted.

    A request of cost 0 is never refused, so its wait is cut to `at_most_us` instead.
    """
    delay_us = bucket.departs(bucket.Params(*limit.params), verdict, cost)
    return min(delay_us, at_most_us or delay_us)
