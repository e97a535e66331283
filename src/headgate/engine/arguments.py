"""What every gate checks and remembers before its store is asked, whichever store that is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar

from headgate.caches import ClearedWhenFull
from headgate.call import Call, Cost, checked_costs, checked_key
from headgate.engine.choice import Decision
from headgate.errors import InvalidCall, InvalidLimit
from headgate.layout import MOST_CALLS
from headgate.limit import Given, Limit, as_limits
from headgate.wording import shown

MOST_PLANS: Final = 1024
"""Limits chosen per call whose plans are remembered."""

Mark = tuple[int, int]
Plan = TypeVar("Plan")


def checked_limits(limits: tuple[Limit, ...]) -> tuple[Limit, ...]:
    """The limits of one gate: each with a state of its own, and not too many."""
    identities = [limit.identity for limit in limits]
    for limit in limits:
        if identities.count(limit.identity) > 1:
            raise InvalidLimit(f"two limits would share one state ({limit.identity}); name one of them with `as NAME`")
    if not 0 < len(limits) <= MOST_CALLS:
        raise InvalidLimit(f"a limiter has from 1 to {MOST_CALLS} limits; got {len(limits)}")
    return limits


def checked_calls(calls: tuple[Call, ...]) -> tuple[tuple[Limit, ...], tuple[str, ...], tuple[int, ...]]:
    """Limits, keys and costs of the calls of one decision."""
    if not 0 < len(calls) <= MOST_CALLS:
        raise InvalidCall(f"a decision has from 1 to {MOST_CALLS} calls; got {len(calls)}")
    for call in calls:
        if not isinstance(call, Call):
            raise InvalidCall(f"decide takes Calls, as in decide(Call(limit, key)); got {shown(call)}")
    if len({(call.limit.identity, call.key) for call in calls}) < len(calls):
        raise InvalidCall("the same limit and key stand twice in one decision; add up their costs in one Call")
    return tuple(call.limit for call in calls), tuple(call.key for call in calls), tuple(call.cost for call in calls)


def checked_refund(
    own: tuple[Limit, ...], charged: Decision | str, n: Cost | tuple[int, ...] | None
) -> tuple[tuple[Limit, ...], tuple[str, ...], tuple[int, ...], tuple[Mark | None, ...]]:
    """Limits, keys, units and marks of what is to be given back. From now on a decision counts it as given."""
    if isinstance(charged, str):
        if n is None:
            raise InvalidCall("refund(key, n) needs to know how many units; refund(decision) knows by itself")
        units = n if isinstance(n, tuple) else checked_costs(own, n)
        return own, (checked_key(charged),) * len(own), units, (None,) * len(own)
    if not hasattr(charged, "_claim_refund"):
        raise InvalidCall(f"refund takes a Decision or a key; got {shown(charged)}")
    calls = charged.calls
    limits = tuple(call.limit for call in calls)
    if n is None:
        n = tuple(call.cost for call in calls)
    wanted = n if isinstance(n, tuple) else checked_costs(limits, n)
    marks = tuple(verdict.mark for verdict in charged.verdicts)
    return limits, tuple(call.key for call in calls), charged._claim_refund(wanted), marks


def in_flight_of(decision: Decision) -> tuple[int, ...]:
    """Of each call, the units that are to be given back when it ends."""
    return tuple(call.cost if call.limit.in_flight else 0 for call in decision.calls)


class Plans(Generic[Plan]):
    """Other numbers for a gate's own states, chosen per call and compiled once."""

    def __init__(self, own: tuple[Limit, ...], compile_plan: Callable[[tuple[Limit, ...]], Plan]) -> None:
        self._own = own
        self._compile = compile_plan
        self._plans: ClearedWhenFull[Given, Plan] = ClearedWhenFull(MOST_PLANS, self._compiled)

    def find(self, limit: Given) -> Plan:
        """The plan of limits chosen for one call."""
        return self._plans[tuple(limit) if isinstance(limit, list) else limit]

    def _compiled(self, chosen: Given) -> Plan:
        limits = as_limits(chosen)
        if [each.identity for each in limits] != [each.identity for each in self._own]:
            own, other = "; ".join(map(str, self._own)), "; ".join(map(str, limits))
            raise InvalidLimit(
                f"limit= changes numbers only; {other} and {own} differ in algorithm, period, name or block, so they "
                "would not share a state"
            )
        return self._compile(limits)
