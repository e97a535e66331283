"""Rules that let every request pass, `act: observe` and `act: mark`: they count a request, and note a refusal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.engine import Decision
from headgate.policy.counting import ALLOWED, DEGRADED_ALLOWED, OBSERVED
from headgate.policy.outcome import Charge
from headgate.policy.over_limit import note_over_limit
from headgate.policy.questions import Question, flat
from headgate.policy.settling import refund
from headgate.policy.view import RequestView
from headgate.steps import Steps

if TYPE_CHECKING:
    from headgate.policy.compiled import CompiledPolicy


def count_watched(view: RequestView, asked: list[Question], policy: CompiledPolicy) -> Steps[list[Charge]]:
    """Count a request, also one that another rule refuses; return the charges. On an error nothing is charged."""
    seen: list[Charge] = []
    try:
        for question in asked:
            yield from _count(view, question, seen, policy)
    except BaseException:
        yield from refund(seen)
        raise
    return seen


def _count(view: RequestView, question: Question, seen: list[Charge], policy: CompiledPolicy) -> Steps[None]:
    rule, result = question[0], ALLOWED
    if policy._bans.may_have() and (yield from policy._bans.observed(view, rule, question[1])):
        return
    for group in policy._grouped(view, [question], looks=not rule.counts_request(view)):
        try:
            decision: Decision = yield group.ask(*flat(group, [question]))
        except Exception as error:
            policy._outage.note(rule, error)
            result = result or DEGRADED_ALLOWED
            continue
        if not decision.allowed:
            result = OBSERVED
            note_over_limit(view, rule, decision, repr(decision))
        elif not group.looks:
            if group.holds_permits:
                group.gate.hold(decision)
            seen.append(Charge(group, decision))
    policy.counts.admitted([((rule,), (question[1],), result)])
