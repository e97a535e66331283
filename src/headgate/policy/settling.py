"""Charges of a request after the decision: given back, corrected by the response, released at the end.

The steps are generators, like those of `compiled.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from headgate.call import Call, checked_cost
from headgate.engine import LONGEST_WAIT, RESERVE, Decision
from headgate.errors import HeadgateError
from headgate.limit import Limit
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


Settled = tuple[tuple[int, ...], Decision, tuple[bool, ...]]
"""A charge after a correction: the units of each limit that are charged now; what is left; and for each limit whether
the app has told its cost, which is final. A plain tuple, as every response that counts makes some."""


def settle(charge: Charge, before: Settled | None, status: int, header: Callable[[str], str | None]) -> Steps[Settled]:
    """Correct a charge by the response; `before` has the corrections so far."""
    group, decision = charge
    costs = decision.costs
    before = before or (costs, decision, (False,) * len(costs))
    real = []
    for place, limit in enumerate(group.limits):  # one loop: a response waits for it
        fixed = limit.in_flight or before[2][place]
        real.append(before[0][place] if fixed else _real(group.owners[place], costs[place], status, header))
    return _correct(charge, before, tuple(real))


def settle_by_name(charge: Charge, before: Settled | None, units: Mapping[str, int]) -> Steps[Settled]:
    """Correct a charge by the units that the app tells under the name of a rule or a limit, once for each limit."""
    group, decision = charge
    costs, left, by_app = before or (decision.costs, decision, (False,) * len(group.limits))
    told, real = list(by_app), list(costs)
    for place, (rule, limit) in enumerate(zip(group.owners, group.limits, strict=True)):
        named = [units[name] for name in names_of(rule, limit) if name in units]
        if named and not told[place] and not limit.in_flight:
            told[place], real[place] = True, named[0]
    return _correct(charge, (costs, left, tuple(told)), tuple(real))


def names_of(rule: Rule, limit: Limit) -> tuple[str, ...]:
    """Return the names of a limit: its own with and without its rule's, and its rule's."""
    return limit.name, limit.name.removeprefix(f"{rule.name}."), rule.name


def _correct(charge: Charge, before: Settled, real: tuple[int, ...]) -> Steps[Settled]:
    """Give back the units above the real costs, and charge those that are missing."""
    group, decision = charge
    costs, left, by_app = before
    unused, more = [], []
    for cost, wanted in zip(costs, real, strict=True):
        unused.append(max(0, cost - wanted))
        more.append(max(0, wanted - cost))
    try:
        if any(unused):
            yield group.gate.refund(decision, tuple(unused))
        if any(more):
            yield from charge_more(group, decision, tuple(more))
        if any(unused) or any(more):
            costs, left = real, (yield group.gate.look(decision))
    except Exception as error:
        log.warning("a charge could not be corrected: %s", error)
    return costs, left, by_app


def charge_refused(group: LimitGroup, decision: Decision, costs: tuple[int, ...]) -> Steps[Decision]:
    """Charge a refused request for rules with `count: {refused: true}`; return the refusal with the wait after that.

    The wait before would be too short: a client that comes back at its end is refused again, and so for ever.
    """
    owned = zip(group.owners, group.limits, costs, strict=True)
    more = tuple(cost if rule.count.refused and not limit.in_flight else 0 for rule, limit, cost in owned)
    try:
        yield from charge_more(group, decision, more)
        after: Decision = yield group.gate.look(decision, costs)
    except Exception as error:
        log.warning("a refused request could not be charged: %s", error)
        return decision
    return decision if after.allowed else after  # allowed if the wait has just ended


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
