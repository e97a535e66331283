"""The cost of a request, before and after the response, and the responses that count."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from headgate.call import checked_cost
from headgate.errors import HeadgateError, InvalidPolicy
from headgate.policy.field_types import Field, Fields, named, some, table
from headgate.policy.match import FIELDS as CONDITIONS
from headgate.policy.match import METHODS, Match, Predicate, read_condition, read_match
from headgate.policy.parser import Parser
from headgate.policy.source import Path_
from headgate.policy.view import RequestView
from headgate.wording import shown

Statuses = frozenset[int]
_CLASS: Final = re.compile(r"([1-5])xx")
WHEN: Final[Fields] = {
    "status": Field("Statuses of responses that count.", some(named("status"))),
    **CONDITIONS,
}
COUNT: Final[Fields] = {
    "when": Field(
        "Only requests and responses like these count. The charge for other responses is given back. Other requests "
        "are not charged, and are refused all the same while the limit is used up.",
        {"minProperties": 1, **table(WHEN)},
    ),
    "refused": Field(
        ("Whether a refused request is charged too, so that retrying early prolongs the wait. Default: false."),
        {"type": "boolean"},
    ),
}
AFTER: Final[Fields] = {
    "header": Field("A response header that contains the cost as a whole number.", {"type": ["string", "null"]}),
    "status": Field(
        "Costs by status, as in {5xx: 0}. They take precedence over the header.",
        {"type": "object", "propertyNames": named("status_text"), "additionalProperties": named("units")},
    ),
}
COSTS: Final[Fields] = {
    **{method: Field(f"The cost of a {method} request.", named("units")) for method in METHODS},
    "default": Field("The cost of any other method, before the response is known. Default: 1.", named("units")),
    "after": Field("The final cost: the difference is charged or given back after the response.", table(AFTER)),
}
MATCHED: Final[Fields] = {
    "match": Field("The requests that cost this. Default: every request.", named("condition")),
    "cost": Field("The cost of these requests.", named("units")),
}


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a request: charged before the app is called, and corrected after the response."""

    fixed: int = 1
    by_method: Mapping[str, int] | None = None
    of: Callable[[RequestView], int] | None = None
    after_header: str | None = None
    after_status: tuple[tuple[Statuses, int], ...] = ()
    by_match: tuple[tuple[Predicate, int], ...] = ()
    """Conditions and their costs: the first that holds counts, `fixed` if none does."""

    def before(self, view: RequestView) -> int:
        """Return the cost that is charged before the app is called."""
        if self.of is not None:
            return self.of(view)
        for holds, cost in self.by_match:
            if holds(view):
                return cost
        return self.fixed if self.by_method is None else self.by_method.get(view.method, self.fixed)

    @property
    def settles(self) -> bool:
        """Whether the response can change the cost."""
        return self.after_header is not None or bool(self.after_status)

    @property
    def rises(self) -> bool:
        """Whether a response can cost more than was charged before it."""
        least = min((self.fixed, *(self.by_method or {}).values()))
        return self.after_header is not None or any(cost > least for _, cost in self.after_status)


@dataclass(frozen=True, slots=True)
class Count:
    """The requests and responses that count."""

    requests: Match | None = None
    """The requests that count; None for every one."""
    statuses: Statuses | None = None
    """Statuses of responses that count; None for every one."""
    refused: bool = False
    """Whether a refused request is charged too."""


def read_count(parser: Parser, value: object, path: Path_) -> Count:
    """Read a rule's `count`."""
    given = parser.fields(value, path, COUNT)
    refused = given.get("refused", False)
    if not isinstance(refused, bool):
        parser.error((*path, "refused"), f"expected true or false; got {shown(refused)}")
    if "when" not in given:
        return Count(refused=refused is True)
    when, at = parser.fields(given["when"], (*path, "when"), WHEN), (*path, "when")
    if not when and given["when"] == {}:
        parser.error(at, "expected the requests or responses that count, as in {status: [401, 403]}")
    rest = {name: when[name] for name in when if name != "status"}
    return Count(
        read_match(parser, rest, at) if rest else None,
        _statuses(parser, when["status"], (*at, "status")) if "status" in when else None,
        refused is True,
    )


def _statuses(parser: Parser, value: object, path: Path_) -> Statuses:
    """Read statuses such as `401`, `[401, 403]` or `5xx`."""
    found: set[int] = set()
    given = value if isinstance(value, list | tuple) else [value]
    if not given:
        parser.error(path, f"expected a status such as 401 or 5xx; got {shown(value)}")
    for each in given:
        whole = _CLASS.fullmatch(each) if isinstance(each, str) else None
        if whole:
            found.update(range(int(whole[1]) * 100, int(whole[1]) * 100 + 100))
        elif re.fullmatch("[1-5][0-9][0-9]", str(each) if isinstance(each, int | str) else ""):
            found.add(int(str(each)))
        else:
            parser.error(path, f"expected a status such as 401 or 5xx; got {shown(each)}")
    return frozenset(found)


def read_cost(parser: Parser, value: object, path: Path_, rule: str) -> Cost:
    """Read a rule's `cost`."""
    if callable(value):
        return Cost(of=_checked(rule, parser.function(value, path)))
    if isinstance(value, list | tuple):
        return Cost(by_match=_by_match(parser, value, path))
    if not isinstance(value, Mapping):
        return Cost(parser.whole(value, path, 0))
    given = parser.fields(value, path, COSTS)
    by_method = {name: parser.whole(given[name], (*path, name), 0) for name in given if name in METHODS}
    if "GET" in by_method:
        by_method.setdefault("HEAD", by_method["GET"])  # as in `match`
    fixed = parser.whole(given.get("default", 1), (*path, "default"), 0)
    if "after" not in given:
        return Cost(fixed, by_method or None)
    after = parser.fields(given["after"], (*path, "after"), AFTER)
    header = after.get("header")
    if header is not None and not isinstance(header, str):
        parser.error((*path, "after", "header"), f"expected the name of a response header; got {shown(header)}")
        header = None
    table = after.get("status", {})
    pairs = []
    if not isinstance(table, Mapping):
        parser.error((*path, "after", "status"), f"expected statuses and costs, as in {{5xx: 0}}; got {shown(table)}")
    else:
        for status, cost in table.items():
            at = (*path, "after", "status", str(status))
            pairs.append((_statuses(parser, status, at), parser.whole(cost, at, 0)))
    return Cost(fixed, by_method or None, None, header.lower() if header else None, tuple(pairs))


def _by_match(parser: Parser, value: Sequence[object], path: Path_) -> tuple[tuple[Predicate, int], ...]:
    """Read a list of costs, each with the requests that it is for."""
    if not value:
        parser.error(path, "expected costs, as in [{match: {path: /export}, cost: 25}]; got an empty list")
    found = []
    for at, each in enumerate(value):
        given = parser.fields(each, (*path, at), MATCHED)
        holds = read_condition(parser, given.get("match", {}), (*path, at, "match"))
        if "cost" not in given and isinstance(each, Mapping):
            parser.error((*path, at), "expected a cost, as in {match: {path: /export}, cost: 25}")
        found.append((holds, parser.whole(given.get("cost", 1), (*path, at, "cost"), 0)))
    return tuple(found)


def _checked(rule: str, function: Callable[[RequestView], Any]) -> Callable[[RequestView], int]:
    """Wrap a function to raise an error that names the rule if its value is not a cost."""

    def cost(view: RequestView) -> int:
        try:
            return checked_cost(function(view))
        except HeadgateError as reason:
            raise InvalidPolicy([f"rule {rule}: the function given as cost: {reason}"]) from None

    return cost
