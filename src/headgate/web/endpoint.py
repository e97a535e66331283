"""The limits of single endpoints, for every framework: a policy's rules, written where the endpoint is.

limit("10/minute", key="user", count={"when": {"status": 401}})     # any field of a rule

Each endpoint has counts of its own, whatever it is called with: its route, not the URL, is part of the key. Limits of
one `name` share one count.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any, Final

from headgate.policy import Policy, RequestView
from headgate.policy.source import Source
from headgate.wording import called

CALLABLE: Final = ("limits", "key", "cost", "exempt")
"""Fields of a rule that may be the app's own functions."""
LONGEST_NAME: Final = 48

Call = Callable[[Callable[..., Any], RequestView], Any]
"""How a framework's users want their functions called: with its request, or with nothing."""


def with_request(function: Callable[..., Any], view: RequestView) -> Any:  # noqa: ANN401
    """Call an app's function with the framework's own request."""
    return function(view.request)


class EndpointLimit:
    """One `limit(...)`. A mistake is told here, where it was made, not at the first request."""

    __slots__ = ("rule",)

    def __init__(self, limits: Any, rule: Mapping[str, Any], call: Call = with_request) -> None:  # noqa: ANN401
        given = {"key": "ip", **rule, "limits": limits}
        for field in CALLABLE:
            if field in given:
                given[field] = _adapted(given[field], call)
        named = given.get("store", "")  # which of the policy's stores it is can be checked when there is a policy
        stores = {named: "memory://"} if isinstance(named, str) and named else {}
        Policy(Source("", {"rules": [given], "stores": stores}, {}, decorator=called()))
        self.rule: Mapping[str, Any] = given


def _adapted(value: Any, call: Call) -> Any:  # noqa: ANN401
    if isinstance(value, list | tuple):
        return [_adapted(each, call) for each in value]
    if not callable(value) or (call is with_request and inspect.iscoroutinefunction(value)):
        return value  # that it cannot be awaited here, the policy says
    return lambda view: call(value, view)


def rules_at(route: str, limits: Sequence[EndpointLimit]) -> list[dict[str, Any]]:
    """The rules of an endpoint: by their own names, or by that of the route."""
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
    """`search`, else `search.2` and so on."""
    return next(each for at in count(1) if (each := name if at == 1 else f"{name}.{at}") not in taken)


def route_name(route: str) -> str:
    """A template (up to the first space) as a name: counts are told apart by the key, so that two may have the same."""
    words = re.sub(r"[^A-Za-z0-9._-]+", "-", route.partition(" ")[0]).strip("-._")[:LONGEST_NAME]
    return words if words[:1].isalpha() else f"route-{words}".rstrip("-")
