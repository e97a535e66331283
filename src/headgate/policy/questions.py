"""The questions of a request to the stores: which rule asks, by which key, at which cost and for which limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from headgate.decision import tightest
from headgate.layout import MOST_CALLS
from headgate.limit import Limit
from headgate.policy.outcome import Charge, LimitGroup, Outcome
from headgate.policy.rule import Rule
from headgate.policy.view import RequestView

Question = tuple[Rule, str, int, tuple[Limit, ...]]
"""A rule, the key it counts by, the cost of the request, and the limits of its plan."""
Round = tuple[list[Question], bool]
"""Questions that are asked together, and whether they are only asked: a rule that does not count a request may still
refuse it. First such rules, then those that charge, then one round for each further value of a key."""
NOBODY: Final = RequestView("GET", "/", {})
"""A request for limits that do not depend on the request."""


def _tightest(charges: list[Charge]) -> Charge:
    """Return the charge that leaves the least, of those that a client may know of."""
    charges = [each for each in charges if not each.group.hidden] or charges
    granted, remaining = [each.decision.granted for each in charges], [each.decision.remaining for each in charges]
    return charges[tightest(granted, remaining)]


def flat(group: LimitGroup, asked: list[Question]) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return a key and a cost for each limit of a group."""
    if len(asked) == 1:
        _, key, cost, _ = asked[0]
        return (key,) * len(group.limits), (cost,) * len(group.limits)
    by_rule = {rule.index: (key, cost) for rule, key, cost, _ in asked}
    pairs = [by_rule[rule.index] for rule in group.owners]
    return tuple(key for key, _ in pairs), tuple(cost for _, cost in pairs)


def passing(passed: list[Charge], delay_us: int, charges: tuple[Charge, ...]) -> Outcome:
    """Return the outcome of a request that every group has admitted; its permits are in flight from now on."""
    for group, decision in passed:
        if group.holds_permits:
            group.gate.hold(decision)
    group, decision = passed[0] if len(passed) == 1 else _tightest(passed)
    rule = group.owners[0] if len(group.owners) == 1 else group.owner(decision)
    return Outcome("pass", 200, rule, decision, group, delay_us, charges)


def put_together(asked: list[Question], gates: Mapping[str, Any], looks: bool) -> tuple[LimitGroup, ...]:
    """Return the groups of some questions, one for each store; with `looks`, groups that charge nothing."""
    by_store: dict[str, list[tuple[Rule, Limit]]] = {}
    for rule, _, _, limits in asked:
        for limit in limits:
            by_store.setdefault(rule.store, []).append((rule, limit))
    groups = []
    for store, pairs in by_store.items():
        for start in range(0, len(pairs), MOST_CALLS):  # a decision has at most MOST_CALLS
            groups.append(LimitGroup(store, gates[store], pairs[start : start + MOST_CALLS], looks))  # noqa: PERF401
    return tuple(groups)
