"""Rules that let every request pass, `act: observe` and `act: mark`: they count a request, and note a refusal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.engine import Decision
from headgate.policy.counting import ALLOWED, DEGRADED_ALLOWED, OBSERVED, PolicyCounts
from headgate.policy.gates import Outage
from headgate.policy.outcome import Charge
from headgate.policy.over_limit import note_over_limit
from headgate.policy.policy_bans import PolicyBans
from headgate.policy.questions import Question, flat
from headgate.policy.settling import refund
from headgate.policy.view import RequestView
from headgate.steps import Steps

if TYPE_CHECKING:
    from headgate.policy.compiled import CompiledPolicy


class Watched:
    """The rules of one policy that let every request pass."""

    def __init__(self, bans: PolicyBans, outage: Outage, counts: PolicyCounts) -> None:
        self._bans, self._outage, self._counts = bans, outage, counts

    def count(self, view: RequestView, asked: list[Question], policy: CompiledPolicy) -> Steps[list[Charge]]:
        """Count a request, also one that another rule refuses; return the charges. On an error nothing is charged."""
        seen: list[Charge] = []
        try:
            for question in asked:
                yield from self._count(view, question, seen, policy)
        except BaseException:
            yield from refund(seen)
            raise
        return seen

    def _count(self, view: RequestView, question: Question, seen: list[Charge], policy: CompiledPolicy) -> Steps[None]:
        rule, result = question[0], ALLOWED
        if self._bans.may_have() and (yield from self._bans.observed(view, rule, question[1])):
            return
        for group in policy._grouped(view, [question], looks=not rule.counts_request(view)):
            try:
                decision: Decision = yield group.ask(*flat(group, [question]))
            except Exception as error:
                self._outage.note(rule, error)
                result = result or DEGRADED_ALLOWED
                continue
            if not decision.allowed:
                result = OBSERVED
                note_over_limit(view, rule, decision, repr(decision))
            elif not group.looks:
                if group.holds_permits:
                    group.gate.hold(decision)
                seen.append(Charge(group, decision))
        self._counts.admitted([((rule,), (question[1],), result)])
