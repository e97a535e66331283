"""The fleet's limit of the section `shed`: requests in flight in all processes, a part of them reserved.

It is a rule with a key for everyone, decided together with the other rules. All classes share one state. A request of a
class that is not critical is asked with a smaller limit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from headgate.errors import HeadgateError
from headgate.limit import Limit, as_limits
from headgate.policy.action import Action
from headgate.policy.cost import Cost, Count
from headgate.policy.field_types import TEXT, Field, Fields
from headgate.policy.key import read_key
from headgate.policy.key_from_values import EVERYONE
from headgate.policy.match import Match
from headgate.policy.parser import Parser
from headgate.policy.rule import Rule, check_store
from headgate.policy.shed_classes import Classes
from headgate.policy.source import Path_
from headgate.policy.view import RequestView
from headgate.wording import shown

NAME: Final = "shed.fleet"
"""The name of the rule; no other rule may have it."""
MOST_RESERVE: Final = 90
RESERVE: Final = "20%"
CRITICAL: Final = "critical"
OTHERS: Final = "default"
FIELDS: Final[Fields] = {
    "limit": Field(
        "The requests that all processes together may have in flight: 800 in flight, or 800 in flight ttl 30s.",
        {"type": "string", "pattern": r"^\s*[0-9][0-9_]*\s*[Ii][Nn](?:\s+|-)[Ff][Ll][Ii][Gg][Hh][Tt]\b"},
    ),
    "reserve": Field(
        f"The part that is for critical requests only, from 0% to {MOST_RESERVE}%. Default: {RESERVE}.",
        {"type": "string", "pattern": "^(?:[0-9]|[1-8][0-9]|90)%$"},
    ),
    "store": Field("The name of one of the policy's stores. Default: the middleware's store.", TEXT),
}


@dataclass(frozen=True)
class FleetRule(Rule):
    """The rule. It applies to requests whose view names a class; the view of an exempt request names none."""

    critical: frozenset[str] = frozenset()
    """The classes for which nothing is reserved from."""

    def limits_for(self, view: RequestView) -> tuple[Limit, ...]:
        """Return the whole limit for a critical class, the limit without the reserve for the others."""
        assert self.plans is not None  # noqa: S101 - made here, with both plans
        return self.plans[CRITICAL if view.request_class in self.critical else OTHERS]

    def observing(self) -> FleetRule:
        """Return the rule for requests that a shedder only observes: it counts them and refuses none."""
        match = self.match._replace(conditions=(_is_observed,))
        return replace(self, index=self.index + 1, match=match, act=Action("observe"))


def _is_enforced(view: RequestView) -> bool:
    return view.request_class is not None and view.would_refuse is None


def _is_observed(view: RequestView) -> bool:
    return view.request_class is not None and view.would_refuse is not None


def read_fleet(
    parser: Parser, value: object, path: Path_, stores: Mapping[str, str], classes: Classes, index: int
) -> FleetRule:
    """Read the limit of the fleet; a store that does not answer lets requests pass."""
    given = parser.fields(value, path, FIELDS)
    limit = _limit(parser, given.get("limit"), (*path, "limit") if "limit" in given else path)
    share = 100 - _reserve(parser, given.get("reserve", RESERVE), (*path, "reserve"))
    amount = max(1, limit.amount * share // 100) if limit.amount else 0
    return FleetRule(
        index=index,
        name=NAME,
        match=Match(None, (), (_is_enforced,)),
        key=read_key(parser, "everyone", path, ()),
        parts=("everyone",),
        writes=(EVERYONE,),
        digest=parser.hashed,
        client_key=parser.client_key,
        plans={CRITICAL: (limit,), OTHERS: (limit.replace(amount=amount, burst=amount),)},
        limits_of=FleetRule.limits_for,  # type: ignore[arg-type]  # the limits depend on more than the plan
        cost=Cost(1),
        count=Count(),
        act=Action(),
        block=0.0,
        blocks_all=False,
        missing="ip",
        repeated="refuse",
        on_error="allow",
        disclose="none",
        exempt=None,
        store=check_store(parser, given.get("store", ""), (*path, "store"), stores),
        critical=classes.critical,
    )


def _limit(parser: Parser, value: object, path: Path_) -> Limit:
    words = "expected a limit in flight, as in 800 in flight"
    some = as_limits("1 in flight")[0].replace(name=NAME)
    if not isinstance(value, str):
        parser.error(path, f"{words}; got {shown(value)}")
        return some
    try:
        limits = as_limits(value)
    except HeadgateError as reason:
        parser.error(path, str(reason))
        return some
    if len(limits) != 1 or not limits[0].in_flight or limits[0].name:
        parser.error(path, f"{words}, without a name; got {shown(value)}")
        return some
    return limits[0].replace(name=NAME)


def _reserve(parser: Parser, value: object, path: Path_) -> int:
    found = re.fullmatch(r"([0-9]{1,2})%", value, re.ASCII) if isinstance(value, str) else None
    if found is None or int(found[1]) > MOST_RESERVE:
        parser.error(path, f"a reserve is a part from 0% to {MOST_RESERVE}%, as in {RESERVE}; got {shown(value)}")
        return 0
    return int(found[1])
