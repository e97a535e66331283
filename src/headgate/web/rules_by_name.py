"""The rules of an app by their names: those of its policy, and those of its endpoints.

A limit of an endpoint that has a name is known as soon as its decorator has run. One without a name is known by the
route of its endpoint: from the framework's list of routes or, in gRPC, once a call has come to its method.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headgate.errors import InvalidCall
from headgate.policy.edges import CountedRule, unknown_rule
from headgate.web.endpoint import named_limits, rules_at

if TYPE_CHECKING:
    from headgate.policy import Policy
    from headgate.web.runtime import Runtime


def counted_rule(runtime: Runtime[Any], name: str) -> CountedRule:
    """Return the rule of this name; raise `InvalidCall` if there is none, or if endpoints have different ones."""
    compiled = runtime.responder_now.compiled
    known: dict[str, list[CountedRule]] = {}
    shown = runtime.watch.shown
    for rule in compiled.policy.every_rule:
        known.setdefault(rule.name, []).append(
            CountedRule(rule, compiled.policy.namespace, compiled.stores, None, shown)
        )
    if name in known:
        return known[name][0]
    _add_of_endpoints(known, runtime, compiled.policy)
    found = known.get(name, [])
    if len(found) == 1:
        return found[0]
    if found:
        raise InvalidCall(f"{len(found)} endpoints have a rule {name!r}; {HINT}")
    raise InvalidCall(f"{unknown_rule(name, list(known))} (a limit of an endpoint: {HINT})")


HINT = "give the limit a name of its own, as in limited('5/minute', name='login')"


def _add_of_endpoints(known: dict[str, list[CountedRule]], runtime: Runtime[Any], policy: Policy) -> None:
    """Add the rules of endpoints that the framework lists or that were requested, and those of limits with names."""
    if runtime.endpoints is not None:
        for route, limits in runtime.endpoints():
            runtime.fast_paths_at.responder(limits, route)
    for route, responder in runtime.fast_paths_at.opened():
        compiled = responder.compiled
        for rule in compiled.policy.rules:
            at = route if rule.parts[0] == "route" else None
            counted = CountedRule(rule, compiled.policy.namespace, compiled.stores, at, runtime.watch.shown)
            others = known.setdefault(rule.name, [])
            if not any(_same(counted, other) for other in others):
                others.append(counted)
    stores = runtime.responder_now.compiled.stores
    for name, limit in named_limits():
        if name not in known and limit.rule.get("store", "") in stores:
            made = policy.with_rules(rules_at("", [limit])).rules[0]
            known[name] = [CountedRule(made, policy.namespace, stores, None, runtime.watch.shown)]


def _same(one: CountedRule, other: CountedRule) -> bool:
    """Whether two endpoints count together: by a limit with a name, which is the same at both."""
    return one.route == other.route and one.rule.plans == other.rule.plans and one.rule.parts == other.rule.parts
