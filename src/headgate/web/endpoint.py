"""The limits of single endpoints, for every framework: a policy's rules, written where the endpoint is.

limit("10/minute", key="user", count={"when": {"status": 401}})     # any field of a rule

Each endpoint has counts of its own: its route is part of the key, and the values in the URL are not. Limits with the
same `name` share one count.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, Final
from weakref import WeakSet

from headgate.policy import Policy, RequestView
from headgate.policy.edges import Source, is_awaited
from headgate.wording import called

CALLABLE: Final = ("limits", "key", "cost", "exempt")
"""Fields of a rule that may be functions of the app."""
LONGEST_NAME: Final = 48

Call = Callable[[Callable[..., Any], RequestView], Any]
"""Calls a function of the app: with the framework's request, or without arguments."""


def with_request(function: Callable[..., Any], view: RequestView) -> Any:  # noqa: ANN401
    """Call an app's function with the framework's own request."""
    return function(view.request)


class EndpointLimit:
    """One `limit(...)`. A mistake raises here, at the decorator, not at the first request."""

    __slots__ = ("__weakref__", "rule")

    def __init__(self, limits: Any, rule: Mapping[str, Any], call: Call = with_request) -> None:  # noqa: ANN401
        given = {"key": "ip", **rule, "limits": limits}
        for field in CALLABLE:
            if field in given:
                given[field] = _adapted(given[field], call)
        named = given.get("store", "")  # the name is checked later, when the policy is known
        stores = {named: "memory://"} if isinstance(named, str) and named else {}
        Policy(Source("", {"rules": [given], "stores": stores}, {}, decorator=called()))
        self.rule: Mapping[str, Any] = given
        if "name" in given:
            _named.add(self)


_named: Final[WeakSet[EndpointLimit]] = WeakSet()


def named_limits() -> Iterator[tuple[str, EndpointLimit]]:
    """Yield every limit of this program that has a name."""
    return ((limit.rule["name"], limit) for limit in list(_named))


def _adapted(value: Any, call: Call) -> Any:  # noqa: ANN401
    if isinstance(value, list | tuple):
        return [_adapted(each, call) for each in value]
    if not callable(value):
        return value
    if call is with_request and is_awaited(value):

        async def awaited(view: RequestView) -> Any:  # noqa: ANN401
            return await value(view.request)

        return awaited
    return lambda view: call(value, view)


def rules_at(route: str, limits: Sequence[EndpointLimit]) -> list[dict[str, Any]]:
    """Return the rules of an endpoint, with their own names or that of the route."""
    taken = {limit.rule["name"] for limit in limits if "name" in limit.rule}
    rules = []
    for limit in limits:
        rule = dict(limit.rule)
        if "name" not in rule:
            key = rule["key"]
            rule["key"] = ["route", *key] if isinstance(key, list | tuple) else ["route", key]
            rule["name"] = _free_name(route_name(route), taken)
            taken.add(rule["name"])
        rules.append(rule)
    return rules


def _free_name(name: str, taken: set[str]) -> str:
    """Return `search`, or `search.2` and so on if it is taken."""
    return next(each for at in count(1) if (each := name if at == 1 else f"{name}.{at}") not in taken)


def route_name(route: str) -> str:
    """Return a template (up to the first space) as a name; two may be equal, as the key has the whole route."""
    words = re.sub(r"[^A-Za-z0-9._-]+", "-", route.partition(" ")[0]).strip("-._")[:LONGEST_NAME]
    return words if words[:1].isalpha() else f"route-{words}".rstrip("-")
