"""A rule: the requests it applies to, the key it counts by, its limits, and the action when they are used up."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, cast, get_args

from headgate.errors import HeadgateError, InvalidPolicy
from headgate.limit import Limit, parse_name
from headgate.policy.action import Action, read_act, read_time
from headgate.policy.cost import COUNT, Cost, Count, read_cost, read_count
from headgate.policy.field_types import NAME, TEXT, Field, Fields, Form, array, named, one_of, some, table, time
from headgate.policy.hashing import Hash
from headgate.policy.key import Part, part_names, read_key
from headgate.policy.key_escaping import ClientKey
from headgate.policy.key_from_values import Writes, read_writes
from headgate.policy.match import Match, Predicate, read_condition, read_match
from headgate.policy.parser import Parser
from headgate.policy.rule_limits import DEFAULT_PLAN, Plans, all_block, compile_limits, warn_of_no_debt
from headgate.policy.source import Path_
from headgate.policy.values import Repeated
from headgate.policy.view import RequestView
from headgate.stores import OnError
from headgate.wording import shown

Missing = Literal["skip", "ip", "deny"]
Disclose = Literal["full", "retry", "none"]
_BY_PLAN: Final[Form] = {
    "description": "Limits by plan. `default` is for requests without a plan or with one that is not listed.",
    "type": "object",
    "required": [DEFAULT_PLAN],
    "additionalProperties": named("limits"),
}
_LIMITS: Final[Form] = {"anyOf": [*some(named("words"))["anyOf"], _BY_PLAN]}
FIELDS: Final[Fields] = {
    "name": Field(
        "The name that the rule counts under, and that refusals and headers show. Each rule needs its own. "
        "Default: rule-1, rule-2, ...",
        {"type": "string", "pattern": f"^{NAME}$"},
    ),
    "match": Field(
        "The requests that the rule applies to: all conditions must hold. Default: every request.", named("condition")
    ),
    "key": Field(
        "The key that the rule counts by: each key has its own budget. Several parts make one key.", some(named("part"))
    ),
    "limits": Field("The limits: the same for every request, or by plan.", _LIMITS),
    "cost": Field(
        "The number of units that a request spends; of a list, the first that fits. Default: 1.",
        {"anyOf": [named("units"), named("costs"), array(named("matched_cost"))]},
    ),
    "count": Field("The requests that count.", table(COUNT)),
    "act": Field(
        "The action when a limit is used up. Default: deny.",
        {"anyOf": [named("action"), named("detailed_action")]},
    ),
    "for": Field("The time for which a key stays blocked after a refusal: 10m, or seconds.", time(exclusiveMinimum=0)),
    "blocks": Field(
        "all: while the rule blocks a key, requests of that key are refused under the other rules of the policy too.",
        one_of(("all",)),
    ),
    "missing": Field(
        "The treatment of a request without a part of the key. ip: the client's address replaces the part. "
        "skip: the rule does not apply. deny: 401, which names the missing part; 403 for a part that a "
        "client cannot send. Default: ip.",
        one_of(get_args(Missing)),
    ),
    "repeated": Field(
        "The treatment of a request that sends different values under one name of the key. Default: the "
        "policy's repeated.",
        named("repeated"),
    ),
    "on_error": Field(
        "The treatment of a request when the store cannot answer. local: count in this process. allow: pass. "
        "deny, raise: 503. Default: local.",
        one_of(get_args(OnError)),
    ),
    "disclose": Field(
        "The information that the client gets. full: everything. retry: Retry-After only. none: nothing. "
        "Default: full.",
        one_of(get_args(Disclose)),
    ),
    "exempt": Field("Requests that match, but that the rule does not apply to.", named("condition")),
    "store": Field("The name of one of the policy's stores. Default: the middleware's store.", TEXT),
}


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule, compiled."""

    index: int
    name: str
    match: Match
    key: tuple[Part, ...]
    parts: tuple[str, ...]
    """The names of the parts of the key."""
    writes: Writes
    """The function that makes a part of the key of a value that code gives."""
    digest: Hash
    """The hash of values that may be secret, keyed with the policy's pepper."""
    client_key: ClientKey
    """The key of an address, by the policy's `address_prefixes`."""
    plans: Plans | None
    limits_of: Callable[[RequestView], Any] | None
    """The app's function that chooses the limits of a request."""
    cost: Cost
    count: Count
    """The requests and responses that count."""
    act: Action
    block: float
    """Seconds for which a refused key stays refused."""
    blocks_all: bool
    """Whether a block of a key holds under every rule."""
    missing: Missing
    """The treatment of a request that lacks a part of the key."""
    repeated: Repeated
    """The treatment of a value that a client sends twice."""
    on_error: OnError
    disclose: Disclose
    exempt: Predicate | None
    """The requests that match and are not counted."""
    store: str
    """The name of one of the policy's stores; empty for the store of the middleware."""
    awaited: tuple[Callable[..., Any], ...] = ()
    """The app's functions in this rule that have to be awaited."""
    follows_response: bool = dataclasses.field(init=False)
    """Whether the charge depends on the response."""
    by_params: bool = dataclasses.field(init=False)
    """Whether a `{name}` of the path is part of the key."""
    holds_permits: bool = dataclasses.field(init=False)
    """Whether the rule has limits in flight, whose permits are released when the request ends."""

    def __post_init__(self) -> None:
        """Fill in what other fields imply: requests ask for it."""
        put = object.__setattr__
        put(self, "follows_response", self.count.statuses is not None or self.cost.settles)
        put(self, "by_params", any(part.startswith("param ") for part in self.parts))
        every = (self.plans or {}).values()
        put(self, "holds_permits", any(limit.in_flight for limits in every for limit in limits))

    def counts_request(self, view: RequestView) -> bool:
        """Whether this request is charged; one that is not may still be refused."""
        return self.count.requests is None or self.count.requests.holds(view)

    def limits_for(self, view: RequestView) -> tuple[Limit, ...]:
        """Return the limits of this request's plan."""
        if self.limits_of is not None:
            try:
                return compile_limits(self.name, self.limits_of(view), self.act, self.block)
            except HeadgateError as reason:
                raise InvalidPolicy([f"rule {self.name}: the function given as limits: {reason}"]) from None
        assert self.plans is not None  # noqa: S101 - one of the two is there
        plan = view.plan
        found = self.plans.get(plan) if plan is not None else None
        return found if found is not None else self.plans[DEFAULT_PLAN]


def read_rule(parser: Parser, value: object, path: Path_, index: int, stores: Mapping[str, str]) -> Rule | None:
    """Read a rule from plain values; None if the value is not a mapping."""
    given = parser.fields(value, path, FIELDS)
    if not isinstance(value, Mapping):
        return None
    of_policy, parser.awaited = parser.repeated, []
    parser.repeated = parser.read_repeated(given, path)
    try:
        return _read_fields(parser, given, path, index, stores)
    finally:
        parser.repeated = of_policy


def _read_fields(parser: Parser, given: Mapping[str, Any], path: Path_, index: int, stores: Mapping[str, str]) -> Rule:
    name = _name(parser, given.get("name", f"rule-{index + 1}"), (*path, "name"))
    match = read_match(parser, given.get("match", {}), (*path, "match"))
    names = dict.fromkeys(name for pattern in match.patterns for name in pattern.names)
    _check_needed(parser, given, path)
    act = read_act(parser, given.get("act", "deny"), (*path, "act"))
    block = read_time(parser, given["for"], (*path, "for"), "10m") if "for" in given else 0.0
    if block and act.kind == "delay":
        parser.error((*path, "for"), "a rule that delays cannot block: remove for, or write another act")
    limits = given.get("limits")
    choose = parser.function(limits, (*path, "limits")) if callable(limits) else None
    plans = None if choose else _plans(parser, limits, (*path, "limits"), name, act, block)
    cost = read_cost(parser, given.get("cost", 1), (*path, "cost"), name)
    if cost.rises:
        warn_of_no_debt(parser, plans or {}, (*path, "limits"), name)
    return Rule(
        index=index,
        name=name,
        match=match,
        key=read_key(parser, given.get("key", "ip"), (*path, "key"), names),
        parts=part_names(given.get("key", "ip")),
        writes=read_writes(given.get("key", "ip"), parser.hashed, parser.client_key),
        digest=parser.hashed,
        client_key=parser.client_key,
        plans=plans,
        limits_of=choose,
        cost=cost,
        count=_count(parser, given.get("count", {}), (*path, "count"), name, match),
        act=act,
        block=block,
        blocks_all=_blocks_all(parser, given, path, plans, act),
        missing=cast("Missing", _word(parser, given, path, "missing", Missing, "ip")),
        repeated=parser.repeated,
        on_error=cast("OnError", _word(parser, given, path, "on_error", OnError, "local")),
        disclose=cast("Disclose", _word(parser, given, path, "disclose", Disclose, "full")),
        exempt=read_condition(parser, given["exempt"], (*path, "exempt"), every=True) if "exempt" in given else None,
        store=check_store(parser, given.get("store", ""), (*path, "store"), stores),
        awaited=tuple(parser.awaited),
    )


def _blocks_all(parser: Parser, given: Mapping[str, Any], path: Path_, plans: Plans | None, act: Action) -> bool:
    if "blocks" not in given or parser.one_of(given["blocks"], (*path, "blocks"), ("all",)) is None:
        return False
    if plans is None or act.kind not in ("deny", "shadow") or not all_block(plans):
        parser.error(
            (*path, "blocks"),
            "a rule that blocks all needs a block for each of its limits, as in for: 10m, and act: deny",
        )
    if any(part.startswith("param ") for part in part_names(given.get("key", "ip"))):
        parser.error((*path, "blocks"), "a {name} of the path is not in other paths: choose another key")
    return True


def _count(parser: Parser, value: object, path: Path_, name: str, match: Match) -> Count:
    count = read_count(parser, value, path)
    if count.requests is not None and not match.covers(count.requests):
        parser.warn(path, f"rule {name}: of the requests that count.when names, match leaves out some or all")
    return count


def _check_needed(parser: Parser, given: Mapping[str, Any], path: Path_) -> None:
    for field in ("key", "limits"):
        if field not in given or (field == "limits" and given[field] in (None, "", [], (), {})):
            parser.error(path, f"a rule needs {field!r}, as in key: ip, limits: 100/minute")


def check_store(parser: Parser, store: object, path: Path_, stores: Mapping[str, str]) -> str:
    """Return the name of a store; an unknown one is an error."""
    if store != "" and not (isinstance(store, str) and store in stores):
        _unknown_store(parser, store, path, stores)
    return store if isinstance(store, str) else ""


def _unknown_store(parser: Parser, store: object, path: Path_, stores: Mapping[str, str]) -> None:
    if isinstance(store, str) and ("/" in store or "@" in store):  # not shown: a URL may contain a password
        parser.error(path, "expected the name of a store; write its URL under that name in `stores`")
    elif stores:
        parser.one_of(store, path, stores)
    else:
        parser.error(path, f"unknown store {shown(store)}: this policy defines no stores")


def _word(parser: Parser, given: Mapping[str, Any], path: Path_, field: str, known: Any, default: str) -> str:  # noqa: ANN401
    if field not in given:
        return default
    return parser.one_of(given[field], (*path, field), get_args(known)) or default


def _name(parser: Parser, value: object, path: Path_) -> str:
    try:
        return parse_name(value)  # type: ignore[arg-type]
    except HeadgateError as reason:
        parser.error(path, str(reason).replace("a limit", "a rule"))
        return "unnamed"


def _plans(parser: Parser, value: object, path: Path_, name: str, act: Action, block: float) -> Plans:
    """Read limits by plan; limits without plans are those of the default plan."""
    by_plan = value if isinstance(value, Mapping) else {DEFAULT_PLAN: value}
    plans: dict[str, tuple[Limit, ...]] = {}
    for plan, words in by_plan.items():
        at = (*path, str(plan)) if isinstance(value, Mapping) else path
        plans[str(plan)] = _limits(parser, words, at, name, act, block)
    if DEFAULT_PLAN not in plans and plans:
        parser.error(path, "plans need a default, for requests without a plan or with one that is not listed")
        plans[DEFAULT_PLAN] = ()
    return plans


def _limits(parser: Parser, value: object, path: Path_, name: str, act: Action, block: float) -> tuple[Limit, ...]:
    try:
        return compile_limits(name, value, act, block)
    except HeadgateError as reason:
        parser.error(path, str(reason))
        return ()
