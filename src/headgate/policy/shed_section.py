"""The section `shed` of a policy: what a load shedder in front of the app needs to know, read and checked.

A policy knows no shedder. The web edges make one from this section, and ask `Classes` here for the class of a request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from headgate.policy.action import read_time
from headgate.policy.awaited_functions import is_awaited
from headgate.policy.field_types import WORD, Field, Fields, Form, array, named, one_of, some, table, time
from headgate.policy.fleet import FIELDS as FLEET_FIELDS
from headgate.policy.fleet import FleetRule, read_fleet
from headgate.policy.key import Part, part_names, read_key
from headgate.policy.mode import MODE, Mode, read_mode
from headgate.policy.parser import Parser
from headgate.policy.shed_classes import ORDER, Classes, read_classes, read_order
from headgate.policy.source import Path_
from headgate.wording import shown

ESTIMATORS: Final = ("adaptive", "aimd", "vegas", "gradient2")
SIGNALS: Final = ("busy", "cpu", "loop_lag", "queue")
TIMEOUT: Final = 1.0
"""Seconds that a request waits for a permit, unless the policy says otherwise."""
MOST: Final = 1_000_000
"""The highest limit that can be written."""
_WHOLE: Final[Form] = {"type": "integer", "minimum": 1, "maximum": MOST}
BOUNDS: Final[Fields] = {
    "initial": Field("The first limit. Default: 20.", _WHOLE),
    "min": Field("The lowest limit. Default: 1.", _WHOLE),
    "max": Field("The highest limit. Default: 1000.", _WHOLE),
}
_ESTIMATORS: Final[Fields] = {
    name: Field(f"The numbers of the estimator {name}.", table(BOUNDS)) for name in ESTIMATORS
}
WORKERS: Final[Fields] = {
    "signals": Field(
        "The signals of busy workers. busy: requests in flight, as a part of the limit. cpu: of one core. loop_lag, "
        "queue: parts of 100 ms in the event loop, and before this process by the header x-request-start.",
        some(one_of(SIGNALS)),
    ),
}
FIELDS: Final[Fields] = {
    "limit": Field(
        "The number of requests in flight: a number, or the estimator that finds it. Default: adaptive.",
        {"anyOf": [_WHOLE, one_of(ESTIMATORS), table(_ESTIMATORS, one=True)]},
    ),
    "order": Field(
        f"The classes, the most important first; the first half, rounded up, is critical. Default: {', '.join(ORDER)}.",
        array(WORD) | {"uniqueItems": True},
    ),
    "classes": Field(
        "Conditions by class; the first that holds counts. Default: the first class that is not critical.",
        {"type": "object", "additionalProperties": named("condition")},
    ),
    "class_header": Field("The request header that names the class. Only a trusted proxy may set it.", WORD),
    "deadline_header": Field("The request header with the milliseconds that the caller waits for its answer.", WORD),
    "tenant": Field(
        "The key of the customer, by which waiting requests share the service. Default: ip.", some(named("part"))
    ),
    "weights": Field(
        "The weight of a tenant by its plan. Default: 1.",
        {"type": "object", "additionalProperties": {"type": "number", "exclusiveMinimum": 0, "maximum": MOST}},
    ),
    "timeout": Field("The time that a request waits for a permit; 0: none. Default: 1s.", time(minimum=0)),
    "exempt": Field("Requests that are never counted and never refused.", named("condition")),
    "workers": Field("Shed by how busy the workers of this process are.", table(WORKERS, "signals")),
    "fleet": Field("A limit in flight for all processes together.", table(FLEET_FIELDS, "limit")),
    "mode": MODE,
}


class Bounds(NamedTuple):
    """The numbers of an estimator."""

    initial: int
    least: int
    most: int


@dataclass(frozen=True, slots=True)
class ShedSection:
    """The section, compiled."""

    limit: int | str
    """A number, or the name of an estimator."""
    bounds: Bounds | None
    """The numbers of the estimator; None for its own."""
    classes: Classes
    class_header: str | None
    deadline_header: str | None
    tenant: tuple[Part, ...] | None
    """The key of the tenant; None for the client's address."""
    tenant_parts: tuple[str, ...]
    """The names of the parts of that key."""
    weights: Mapping[str, float]
    """Weights of tenants, by plan."""
    timeout: float
    """Seconds that a request waits for a permit."""
    signals: tuple[str | Callable[[], float], ...]
    """The signals of a worker shedder, names or functions of the app; empty for none."""
    fleet: tuple[FleetRule, ...]
    """The rules of the fleet's limit: for requests that the shedder enforces, and for those that it observes."""
    mode: Mode

    @property
    def estimator(self) -> tuple[int | str, Bounds | None]:
        """The limit with its numbers: a shedder goes on with what it has learned while this stays the same."""
        return self.limit, self.bounds


def read_shed(parser: Parser, value: object, stores: Mapping[str, str], rules: int) -> ShedSection:
    """Read the section; `rules` is the number of rules before the one of the fleet."""
    path: Path_ = ("shed",)
    given = parser.fields(value, path, FIELDS)
    limit, bounds = _limit(parser, given.get("limit", "adaptive"), (*path, "limit"))
    order = read_order(parser, given["order"], (*path, "order")) if "order" in given else ORDER
    classes = read_classes(parser, given, path, order)
    fleet = read_fleet(parser, given["fleet"], (*path, "fleet"), stores, classes, rules) if "fleet" in given else None
    workers = parser.fields(given["workers"], (*path, "workers"), WORKERS) if "workers" in given else {}
    tenant = given.get("tenant", "ip")
    return ShedSection(
        limit=limit,
        bounds=bounds,
        classes=classes,
        class_header=_header(parser, given, path, "class_header"),
        deadline_header=_header(parser, given, path, "deadline_header"),
        tenant=None if tenant == "ip" else read_key(parser, tenant, (*path, "tenant"), ()),
        tenant_parts=part_names(tenant),
        weights=_weights(parser, given.get("weights", {}), (*path, "weights")),
        timeout=_timeout(parser, given.get("timeout", TIMEOUT), (*path, "timeout")),
        signals=_signals(parser, workers, (*path, "workers")) if "workers" in given else (),
        fleet=() if fleet is None else (fleet, fleet.observing()),
        mode=read_mode(parser, given.get("mode", "enforce"), (*path, "mode")),
    )


def _limit(parser: Parser, value: object, path: Path_) -> tuple[int | str, Bounds | None]:
    if isinstance(value, str):
        return parser.one_of(value, path, ESTIMATORS) or "adaptive", None
    if not isinstance(value, Mapping):
        return parser.whole(value, path, 1, MOST), None
    found = parser.fields(value, path, ESTIMATORS)
    if len(found) != 1:
        parser.error(path, f"expected a number, or one of {', '.join(ESTIMATORS)}; got {shown(value)}")
        return "adaptive", None
    name, numbers = next(iter(found.items()))
    return name, _bounds(parser, numbers, (*path, name))


def _bounds(parser: Parser, value: object, path: Path_) -> Bounds:
    given = parser.fields(value, path, BOUNDS)
    told = {name: parser.whole(given[name], (*path, name), 1, MOST) for name in given}
    least, most = told.get("min", 1), told.get("max", max(1000, told.get("min", 1)))
    initial = told.get("initial", min(most, max(least, 20)))
    if not least <= initial <= most:
        parser.error(path, f"expected min <= initial <= max; got {least}, {initial}, {most}")
    return Bounds(initial, least, most)


def _header(parser: Parser, given: Mapping[str, Any], path: Path_, field: str) -> str | None:
    if field not in given:
        return None
    name = given[field]
    if not isinstance(name, str) or not name:
        parser.error((*path, field), f"expected the name of a header; got {shown(name)}")
        return None
    return name.lower()


def _weights(parser: Parser, value: object, path: Path_) -> dict[str, float]:
    if not isinstance(value, Mapping):
        parser.error(path, f"expected plans and weights, as in {{free: 1, pro: 5}}; got {shown(value)}")
        return {}
    weights: dict[str, float] = {}
    for plan, weight in value.items():
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight <= MOST:
            parser.error((*path, str(plan)), f"a weight is a number above 0, up to {MOST}; got {shown(weight)}")
        else:
            weights[str(plan)] = float(weight)
    return weights


def _timeout(parser: Parser, value: object, path: Path_) -> float:
    if value == 0 and not isinstance(value, bool):
        return 0.0
    return read_time(parser, value, path, "1s")


def _signals(parser: Parser, workers: Mapping[str, Any], path: Path_) -> tuple[str | Callable[[], float], ...]:
    if "signals" not in workers:
        parser.error(path, "workers need signals, as in {signals: [busy, cpu]}")
        return ()
    at = (*path, "signals")
    given = workers["signals"]
    each = given if isinstance(given, list | tuple) else [given]
    functions = [signal for signal in each if callable(signal)]
    for function in functions:
        if is_awaited(function):
            parser.error(at, f"expected a plain function; {shown(function)} has to be awaited")
    names = [signal for signal in each if not callable(signal)]
    words = parser.words(names, at, "a signal such as busy") if names or not functions else []
    return (*dict.fromkeys(word for word in words if parser.one_of(word, at, SIGNALS)), *functions)
