"""Requests over the limit of a rule that lets every request pass: `act: observe` and `act: mark`."""

from __future__ import annotations

from headgate.engine import Decision
from headgate.policy.rule import Rule
from headgate.policy.view import RequestView
from headgate.wording import log_of

log = log_of("headgate.policy")


def note_over_limit(view: RequestView, rule: Rule, decision: Decision | None, why: object) -> None:
    """Note that the rule would refuse the request: for the endpoint, or in the log."""
    if rule.act.kind == "mark":
        view.marked = (*view.marked, (rule, decision))
        return
    log.info("rule %s (observe) would refuse: %s", rule.name, why)
    if decision is not None and view.would_refuse is not None:
        view.would_refuse.append(rule.name)
