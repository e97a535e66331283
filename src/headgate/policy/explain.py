"""What a policy makes of a request, in words, for people at a command line. Nothing is charged."""

from __future__ import annotations

from typing import NamedTuple

from headgate.policy.judge import Judge
from headgate.policy.key import Params
from headgate.policy.policy import Policy
from headgate.policy.rule import Rule
from headgate.policy.view import RequestView


class Told(NamedTuple):
    """What a rule makes of a request."""

    words: str
    idle: str
    """Why the rule has no say, where it has none."""


def by_lists(policy: Policy, view: RequestView) -> str | None:
    """What happens to a request whatever the rules say; None where that is up to them."""
    if policy.allow is not None and policy.allow(view):
        return "allowed: it is on the list of what is always allowed"
    if policy.deny is not None and policy.deny(view):
        return "refused (403): it is on the list of what is always refused"
    return None


def by_rules(judge: Judge, view: RequestView) -> list[Told]:
    """The rules that a request comes under: what each counts it by, its limits, and what it costs."""
    return [_by_rule(judge, rule, view, params) for rule, params in judge.policy.matching(view)]


def _by_rule(judge: Judge, rule: Rule, view: RequestView, params: Params) -> Told:
    key, limits = judge._key(rule, view, params), rule.limits_for(view)
    told, idle = f"counted by {key}", ""
    if not isinstance(key, str):
        refused = key is not None and rule.act.kind != "observe"
        told = f"{'refused' if refused else 'skipped'} because {_missing(rule, view, params)}"
        idle = f"rule {rule.name} is skipped"
    elif rule.act.kind == "observe":
        idle = f"rule {rule.name} only observes"
    elif not limits:
        idle = f"rule {rule.name} has no limit for this plan"
    words = "; ".join(map(str, limits)) or "no limit for this plan"
    return Told(f"rule {rule.name}: {told}; {words}; cost {rule.cost.before(view)}; act {rule.act.kind}", idle)


def _missing(rule: Rule, view: RequestView, params: Params) -> str:
    """Which parts of the key were not sent."""
    missing = [name for name, part in zip(rule.parts, rule.key, strict=True) if part(view, params) is None]
    return f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing"
