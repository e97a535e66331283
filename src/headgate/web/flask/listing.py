"""Limits in words, for people at a command line: what an endpoint has, and what a request would come under."""

from __future__ import annotations

from collections.abc import Sequence

from headgate.policy import Policy, RequestView
from headgate.policy.compiled import CompiledPolicy
from headgate.policy.explain import by_lists, by_rules
from headgate.policy.rule import DEFAULT_PLAN, Rule
from headgate.web.endpoint import EndpointLimit, rules_at


def listed(policy: Policy, route: str, limits: Sequence[EndpointLimit]) -> list[str]:
    """The limits of an endpoint, a line for each."""
    return [_words(rule) for rule in policy.with_rules(rules_at(route, limits)).rules] if limits else []


def _words(rule: Rule) -> str:
    parts = [part for part in rule.parts if part != "route"]  # of its own, as every endpoint has
    said = [_limits(rule), f"by {' and '.join(parts)}"]
    if rule.match.methods is not None:
        said.append(f"for {' and '.join(sorted(rule.match.methods))}")
    if rule.match.patterns or rule.match.conditions:
        said.append("where it matches")
    if rule.exempt is not None:
        said.append("with exemptions")
    if rule.counts is not None:
        said.append("counted by the response")
    if rule.act.kind != "deny":
        said.append(rule.act.words)
    return ", ".join(said)


def _limits(rule: Rule) -> str:
    if rule.plans is None:
        return "what a function gives"
    plans = {name: "; ".join(map(str, limits)) or "no limit" for name, limits in rule.plans.items()}
    return plans[DEFAULT_PLAN] if len(plans) == 1 else ", ".join(f"{name}: {words}" for name, words in plans.items())


def explained(compiled: CompiledPolicy, view: RequestView) -> list[str]:
    """The rules that a request comes under, and by which key each counts it."""
    listed = by_lists(compiled.policy, view)
    return [each.words for each in by_rules(compiled, view)] if listed is None else [listed]
