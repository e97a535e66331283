"""The effect of a policy on a request in words, for the command line. No limit is charged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headgate.policy.action import LETS_PASS
from headgate.policy.compiled import CompiledPolicy
from headgate.policy.key import Params, is_missing
from headgate.policy.match import trusted_header
from headgate.policy.outcome import Outcome
from headgate.policy.policy import Policy
from headgate.policy.rule import Rule
from headgate.policy.shed_section import ShedSection
from headgate.policy.values import Unclear
from headgate.policy.view import RequestView
from headgate.steps import run
from headgate.stores import MemoryStore


class Effect(NamedTuple):
    """The effect of a rule on a request."""

    words: str
    idle: str
    """The reason why the rule has no effect; empty if it has one."""


def explain(policy: Policy, view: RequestView) -> list[str]:
    """Return the effect of each rule, and the decision while nothing is spent yet. Also sets the plan of `view`."""
    shed = [] if policy.shed is None else [_by_shed(policy.shed, view)]
    listed = _by_lists(policy, view)
    if listed is not None:
        return [*shed, listed]
    compiled = CompiledPolicy(policy, {name: MemoryStore() for name in ("", *policy.stores)}, awaited=False)
    effects = _by_rules(compiled, view)
    if not effects:
        return [*shed, "allowed: no rule matches"]
    idle = [each.idle for each in effects if each.idle]
    return [*shed, *(each.words for each in effects), *_verdict(run(compiled.before(view)), idle)]


def _by_shed(shed: ShedSection, view: RequestView) -> str:
    """Return the class of a request, and set it for the fleet's limit."""
    if shed.mode == "off":
        return "shed: off"
    named = trusted_header(view, shed.class_header) if shed.class_header else ()
    found = shed.classes.candidates(view.method, view.path).class_of(view)
    if found is None:
        return "shed: exempt"
    if named:
        found = named[0] if named[0] in shed.classes.order else shed.classes.default
    view.request_class = found
    if shed.mode == "observe":
        view.would_refuse = []
    critical = ", critical" if found in shed.classes.critical else ""
    return f"shed: class {found}{critical}; waits for at most {shed.timeout:g} s; {shed.mode}"


def _verdict(outcome: Outcome, idle: list[str]) -> list[str]:
    """Return what happens to the request, and by which rule."""
    if outcome.decision is not None and outcome.rule is not None:
        said = "allowed" if outcome.kind == "pass" else "refused"
        left = f"{outcome.decision.remaining} of {outcome.decision.limit} left after it"
        binding = f"binding: rule {outcome.rule.name}, {outcome.decision.binding}"
        return [binding, f"with nothing spent yet: {said}, {left}"]
    if outcome.kind == "pass":
        return [f"allowed: {'; '.join(idle)}"]
    said = f"refused ({outcome.status})" + (f" by rule {outcome.rule.name}" if outcome.rule else "")
    return [f"{said}: {outcome.detail}" if outcome.detail else said]


def _by_lists(policy: Policy, view: RequestView) -> str | None:
    """Return the effect of `allow` and `deny`; None if the rules decide. Also sets the plan of the request."""
    try:
        if view.plan is None:
            view.plan = policy.plan_of(view)
        if policy.allow is not None and policy.allow(view):
            return "allowed: the policy's allow matches it"
        if policy.deny is not None and policy.deny(view):
            return "refused (403): the policy's deny matches it"
    except Unclear as reason:
        return f"refused (400): {reason}"
    return None


def _by_rules(compiled: CompiledPolicy, view: RequestView) -> list[Effect]:
    """Return the effect of each rule that applies: key, limits and cost."""
    try:
        return [_by_rule(compiled, rule, view, params) for rule, params in compiled.policy.matching(view)]
    except Unclear as reason:  # raised by a condition
        return [Effect(f"refused because {reason.reason}", "")]


def _by_rule(compiled: CompiledPolicy, rule: Rule, view: RequestView, params: Params) -> Effect:
    try:
        return _counted(rule, compiled.keys(rule, view, params), view, params)
    except Unclear as reason:
        return Effect(f"rule {rule.name}: refused because {reason.reason}; repeated: {rule.repeated}", "")


def _counted(rule: Rule, keys: Outcome | Sequence[str], view: RequestView, params: Params) -> Effect:
    limits, idle = rule.limits_for(view), ""
    counted = f"counted by {' and by '.join(keys)}" if not isinstance(keys, Outcome) else ""
    if isinstance(keys, Outcome) or not keys:
        refused = isinstance(keys, Outcome) and rule.act.kind not in LETS_PASS
        counted = f"{'refused' if refused else 'skipped'} because {missing_parts(rule, view, params)}"
        idle = f"rule {rule.name} is skipped"
    elif rule.act.kind in LETS_PASS:
        idle = f"rule {rule.name} only {rule.act.kind}s"
    elif not limits:
        idle = f"rule {rule.name} has no limit for this plan"
    words = "; ".join(map(str, limits)) or "no limit for this plan"
    return Effect(f"rule {rule.name}: {counted}; {words}; cost {rule.cost.before(view)}; act {rule.act.words}", idle)


def missing_parts(rule: Rule, view: RequestView, params: Params) -> str:
    """Name the parts of the key that were not sent."""
    missing = [name for name, part in zip(rule.parts, rule.key, strict=True) if is_missing(part, view, params)]
    return f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing"
