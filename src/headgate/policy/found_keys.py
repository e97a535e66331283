"""The keys by which a policy counts a request, found as `explain` finds them, for a look into a store."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from headgate.limit import Limit
from headgate.policy.compiled import CompiledPolicy
from headgate.policy.explain import missing_parts
from headgate.policy.key import Params, is_missing
from headgate.policy.outcome import Outcome
from headgate.policy.policy import Policy
from headgate.policy.rule import Rule
from headgate.policy.rule_keys import CountedRule, rule_named
from headgate.policy.values import Unclear
from headgate.policy.view import RequestView
from headgate.stores import MemoryStore


class FoundKeys(NamedTuple):
    """The keys of a request under one rule."""

    rule: Rule
    keys: tuple[str, ...]
    why: str
    """The reason why there is no key; empty if there is one."""
    limits: tuple[Limit, ...] = ()
    """The limits of the request's plan."""
    every_limit: tuple[Limit, ...] = ()
    """A limit for each state that a key of the rule may have, in whatever plan."""


def found_keys(
    policy: Policy, view: RequestView, rule: str | None, every: bool, address_is_known: bool = True
) -> list[FoundKeys]:
    """Return the keys of a request under the rule of this name, under `every` rule, or under those that match it.

    Where the address is not known, rules that need it have no key: it is not that of clients without an address.
    """
    if view.plan is None:
        view.plan = policy.plan_of(view)
    compiled = CompiledPolicy(policy, {name: MemoryStore() for name in ("", *policy.stores)}, awaited=False)
    rules = _rules(policy, view, rule, every)
    return [_found(compiled, each, view, params, address_is_known) for each, params in rules]


def _rules(policy: Policy, view: RequestView, rule: str | None, every: bool) -> Iterable[tuple[Rule, Params]]:
    if rule is None and not every:
        return policy.matching(view)
    params = {each.name: params for each, params in policy.rules_for(view.method, view.path).pairs}
    rules = policy.every_rule if rule is None else [rule_named(rule, policy.every_rule)]
    return [(each, params.get(each.name, {})) for each in {each.name: each for each in rules}.values()]


def _found(
    compiled: CompiledPolicy, rule: Rule, view: RequestView, params: Params, address_is_known: bool
) -> FoundKeys:
    if not address_is_known and any(is_missing(part, view, params) for part in rule.key):
        return FoundKeys(rule, (), missing_parts(rule, view, params))
    try:
        keys = compiled.keys(rule, view, params)
    except Unclear as reason:
        return FoundKeys(rule, (), str(reason))
    if isinstance(keys, Outcome) or not keys:
        return FoundKeys(rule, (), missing_parts(rule, view, params))
    counted = CountedRule(rule, compiled.policy.namespace, {})
    return FoundKeys(rule, tuple(keys), "", rule.limits_for(view), counted.every_limit(None))
