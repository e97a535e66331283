"""Charges of a request after the decision: given back, corrected by the response, released at the end.

The steps are generators, like those of `compiled.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headgate.call import Call, checked_cost
from headgate.engine import LONGEST_WAIT, RESERVE, Decision
from headgate.errors import HeadgateError
from headgate.policy.outcome import Charge, LimitGroup
from headgate.policy.rule import Rule
from headgate.steps import Steps
from headgate.wording import log_of, shown

log = log_of("headgate.policy")


def refund(charges: Sequence[Charge]) -> Steps[None]:
    """Give back the charges of a request that does not reach the app."""
    for group, decision in charges:
        try:
            yield group.gate.refund(decision)
        except Exception as error:
            log.warning("a charge could not be refunded: %s", error)


def settle(
    charges: Sequence[Charge], status: int, header: Callable[[str], str | None]
) -> Steps[dict[LimitGroup, Decision]]:
    """Correct the charges by the response: give back unused units, charge further ones.

    Return the current decision for each group whose charge changed.
    """
    left: dict[LimitGroup, Decision] = {}
    for group, decision in charges:
        if not group.follows:
            continue
        unused, more = [], []
        for rule, limit, cost in zip(group.owners, group.limits, decision.costs, strict=True):
            further = 0 if limit.in_flight else _real(rule, cost, status, header) - cost
            unused.append(max(0, -further))
            more.append(max(0, further))
        try:
            if any(unused):
                yield group.gate.refund(decision, tuple(unused))
            if any(more):
                yield from charge_more(group, decision, tuple(more))
            if any(unused) or any(more):
                left[group] = yield group.gate.look(decision)
        except Exception as error:
            log.warning("the response could not be counted: %s", error)
    return left


def charge_refused(group: LimitGroup, decision: Decision, costs: tuple[int, ...]) -> Steps[None]:
    """Charge a refused request for each rule with `count: {refused: true}`."""
    owned = zip(group.owners, group.limits, costs, strict=True)
    more = tuple(cost if rule.count.refused and not limit.in_flight else 0 for rule, limit, cost in owned)
    yield from charge_more(group, decision, more)


def release(charges: Sequence[Charge]) -> Steps[None]:
    """Release the permits of a request that has ended."""
    for group, decision in charges:
        if group.holds_permits:
            try:
                yield group.gate.release(decision)
            except Exception as error:
                log.warning("a permit could not be released before its ttl: %s", error)


def charge_more(group: LimitGroup, decision: Decision, more: tuple[int, ...]) -> Steps[None]:
    """Charge further units, as far as each limit can owe."""
    for call, extra in zip(decision.calls, more, strict=True):
        while extra > 0:
            units = min(extra, call.limit.burst)
            ask = Call(call.limit, call.key, units)
            charged: Decision = yield group.gate._decide((ask,), RESERVE, LONGEST_WAIT)
            if charged.allowed:
                extra -= units
            elif 0 < charged.remaining < units:  # windows and logs cannot owe: charge as much as there is room for
                extra = charged.remaining
            else:
                break


def _real(rule: Rule, cost: int, status: int, header: Callable[[str], str | None]) -> int:
    """Return the cost of a request by its response."""
    if rule.count.statuses is not None and status not in rule.count.statuses:
        return 0
    for statuses, by_status in rule.cost.after_status:
        if status in statuses:
            return by_status
    if rule.cost.after_header is not None:
        text = header(rule.cost.after_header)
        try:
            return cost if text is None else checked_cost(int(text.strip()))
        except (ValueError, HeadgateError):
            log.warning("rule %s: the header %s is not a cost: %s", rule.name, rule.cost.after_header, shown(text))
    return cost
