"""Checks of arguments, plans compiled once, and lists of permits: the work of a gate besides its store."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Generic, NamedTuple, TypeVar, get_args

from headgate.caches import ClearedWhenFull
from headgate.call import Call, Cost, checked_costs, checked_key
from headgate.clock import DAY, SECOND
from headgate.engine import Decision
from headgate.errors import InvalidCall, InvalidLimit
from headgate.layout import MOST_CALLS
from headgate.limit import PAUSE, Given, Limit, as_limits
from headgate.stores.contract import OnError
from headgate.wording import shown

MOST_PLANS: Final = 1024
"""The number of plans, chosen per call, that stay compiled."""

Mark = tuple[int, int]
Plan = TypeVar("Plan")


def checked_namespace(namespace: str) -> str:
    """Return the namespace, or raise `InvalidCall`."""
    if not isinstance(namespace, str) or not namespace or "\0" in namespace:
        raise InvalidCall(f"a namespace must be a str that is not empty and has no NUL; got {namespace!r}")
    return namespace


def checked_on_error(on_error: OnError) -> OnError:
    """Return the word, or raise `InvalidCall`."""
    if on_error not in get_args(OnError):
        raise InvalidCall(f"on_error must be one of {', '.join(get_args(OnError))}; got {on_error!r}")
    return on_error


def checked_limits(limits: tuple[Limit, ...]) -> tuple[Limit, ...]:
    """Return the limits of one gate, or raise `InvalidLimit`: each needs its own state, and their number is bounded."""
    identities: set[str] = set()
    for limit in limits:
        if limit.identity in identities:
            raise InvalidLimit(f"two limits would share one state ({limit.identity}); name one of them with `as NAME`")
        identities.add(limit.identity)
    if not 0 < len(limits) <= MOST_CALLS:
        raise InvalidLimit(f"a limiter has from 1 to {MOST_CALLS} limits; got {len(limits)}")
    return limits


def checked_pause(seconds: float) -> int:
    """Return the time of a pause in microseconds, or raise `InvalidCall`."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= DAY // SECOND:
        raise InvalidCall(
            f"a pause takes a number of seconds above 0, at most a day ({DAY // SECOND}); got {shown(seconds)}"
        )
    return max(1, round(seconds * SECOND))


def checked_calls(
    calls: tuple[Call, ...], pausable: bool = False
) -> tuple[tuple[Limit, ...], tuple[str, ...], tuple[int, ...]]:
    """Return the limits, keys and costs of the calls of one decision; `pausable`: and the pause of each key."""
    if not 0 < len(calls) <= MOST_CALLS:
        raise InvalidCall(f"a decision has from 1 to {MOST_CALLS} calls; got {len(calls)}")
    for call in calls:
        if not isinstance(call, Call):
            raise InvalidCall(f"decide takes Calls, as in decide(Call(limit, key)); got {shown(call)}")
    if len({(call.limit.identity, call.key) for call in calls}) < len(calls):
        raise InvalidCall("the same limit and key appear twice in one decision; put their total cost in one Call")
    if pausable:
        most: dict[str, int] = {}
        for call in calls:
            most[call.key] = max(call.cost, most.get(call.key, 0))
        return checked_calls((*calls, *(Call(PAUSE, key, cost) for key, cost in most.items())))
    return tuple(call.limit for call in calls), tuple(call.key for call in calls), tuple(call.cost for call in calls)


def checked_refund(
    own: tuple[Limit, ...], charged: Decision | str, n: Cost | tuple[int, ...] | None
) -> tuple[tuple[Limit, ...], tuple[str, ...], tuple[int, ...], tuple[Mark | None, ...]]:
    """Return the limits, keys, units and marks to give back. The decision counts them as given back from now on."""
    if isinstance(charged, str):
        if n is None:
            raise InvalidCall("refund of a key needs a number of units; write refund(key, n) or refund(decision)")
        units = n if isinstance(n, tuple) else checked_costs(own, n)
        return own, (checked_key(charged),) * len(own), units, (None,) * len(own)
    if not hasattr(charged, "_claim_refund"):
        raise InvalidCall(f"refund takes a Decision or a key; got {shown(charged)}")
    limits, keys = charged._asked
    wanted = charged.costs if n is None else n if isinstance(n, tuple) else checked_costs(limits, n)
    return limits, keys, charged._claim_refund(wanted), charged._marks


def in_flight_of(decision: Decision) -> tuple[int, ...]:
    """Return, for each call, the units in flight: the units to give back when the request ends."""
    limits, _ = decision._asked
    return tuple([cost if limit.in_flight else 0 for limit, cost in zip(limits, decision.costs, strict=True)])


class Plans(Generic[Plan]):
    """The plans of a gate: other numbers for its own states, chosen per call and compiled once."""

    def __init__(self, own: tuple[Limit, ...], compile_plan: Callable[[tuple[Limit, ...]], Plan]) -> None:
        self._own = own
        self._compile = compile_plan
        self._plans: ClearedWhenFull[Given, Plan] = ClearedWhenFull(MOST_PLANS, self._compiled)

    def find(self, limit: Given) -> Plan:
        """Return the compiled plan for the limits of one call."""
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


class Holding(NamedTuple):
    """One permit in flight."""

    limit: Limit
    age: float
    """Seconds since the permit was taken."""
    units: int
    own: bool
    """Whether this process holds the permit."""


def listed(limits: tuple[Limit, ...], held: Iterable[tuple[int, int, int, bool]]) -> list[Holding]:
    """Return holdings, the oldest first, from rows of limit index, age, units and whether this process holds them."""
    each = [Holding(limits[at], age_us / SECOND, units, own) for at, age_us, units, own in held]
    return sorted(each, key=lambda holding: -holding.age)
