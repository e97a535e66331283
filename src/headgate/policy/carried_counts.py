"""Budgets across a reload: the old limit of a changed rule is counted beside the new one until its counts expire.

A store keeps a state by the limit's name, algorithm and period. A rule that changes one of them would begin with an
unused budget, and every client could spend a second one. So the old limit stays in the rule for as long as its counts
matter. Meanwhile it has the numbers of its successor: a reload that raises a limit takes effect at once.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from headgate.clock import DAY, SECOND
from headgate.errors import InvalidLimit
from headgate.limit import Limit
from headgate.policy.policy import Policy
from headgate.policy.rule import Rule


class CarriedCounts(NamedTuple):
    """A limit of an earlier policy, in a plan of a rule of this one."""

    rule: str
    plan: str
    limit: Limit
    until_us: int


class Reload(NamedTuple):
    """The result of comparing an old policy with a new one."""

    carried: tuple[CarriedCounts, ...]
    lines: tuple[tuple[int, str], ...]
    """Log lines with their levels: rules whose counts are carried, and rules that have new counts."""
    at_us: int
    """The time at which the policies were compared."""

    def taken_up(self, now_us: int) -> tuple[CarriedCounts, ...]:
        """Return the carried limits with later ends: the old policy has counted until now."""
        return tuple(each._replace(until_us=each.until_us + now_us - self.at_us) for each in self.carried)


def compare(old: Policy, new: Policy, earlier: Sequence[CarriedCounts], now_us: int) -> Reload:
    """Return the limits of `old`, and those it carried from `earlier`, that are counted beside those of `new`."""
    lines: list[tuple[int, str]] = []
    carried: list[CarriedCounts] = []
    names: dict[str, str] = {}
    for before, rule in _pairs(old, new):
        changed = _other_counts(old, new, before, rule)
        if changed:
            lines.append((logging.WARNING, f"rule {rule.name} has new counts: {changed}"))
            continue
        names[before.name] = rule.name
        for plan, left, limit in _left_behind(before, rule):
            lasts = _lasts(left)
            carried.append(CarriedCounts(rule.name, plan, _with_numbers_of(limit, left), now_us + lasts))
            lines.append((logging.INFO, f"rule {rule.name}: {left} is counted beside {limit} for {lasts / SECOND:g} s"))
    going = (each for each in earlier if each.rule in names and each.until_us > now_us)
    carried += [each._replace(rule=names[each.rule]) for each in going]
    there = {limit.identity for rule in new.rules for limit in _limits(rule)}
    by_state = {(each.plan, each.limit.identity): each for each in reversed(carried)}
    kept = (each for each in by_state.values() if each.limit.identity not in there)
    return Reload(tuple(kept), tuple(lines), now_us)


def with_carried(policy: Policy, carried: Sequence[CarriedCounts]) -> Policy:
    """Return the policy with the carried limits in its rules."""
    if not carried:
        return policy
    rules = {rule.name: rule for rule in policy.rules}
    for each in carried:
        rule = rules[each.rule]
        if rule.plans is not None and each.plan in rule.plans:
            plans = {**rule.plans, each.plan: (*rule.plans[each.plan], each.limit)}
            rules[rule.name] = replace(rule, plans=plans)
    return policy.with_compiled(list(rules.values()))


def _pairs(old: Policy, new: Policy) -> Iterator[tuple[Rule, Rule]]:
    """Yield old and new version of each rule: the same name, or another name and otherwise equal."""
    by_name = {rule.name: rule for rule in old.rules}
    names = {rule.name for rule in new.rules}
    gone: dict[tuple[Any, ...], list[Rule]] = {}
    for rule in reversed(old.rules):
        if rule.name not in names:
            gone.setdefault(_but_name(rule), []).append(rule)
    for rule in new.rules:
        if rule.name in by_name:
            yield by_name[rule.name], rule
        elif gone and (same := gone.get(_but_name(rule))):
            yield same.pop(), rule


def _but_name(rule: Rule) -> tuple[Any, ...]:
    """Return the comparable fields of a rule, without its name."""
    match = rule.match
    paths = tuple(pattern.text for pattern in match.patterns)
    plans = tuple(
        (plan, *(str(limit.replace(name="any")) for limit in limits)) for plan, limits in (rule.plans or {}).items()
    )
    return match.methods, paths, len(match.conditions), match.messages, rule.parts, rule.store, plans


def _other_counts(old: Policy, new: Policy, before: Rule, rule: Rule) -> str:
    """Return why the old counts of a rule cannot be read any more; empty if they can."""
    if old.namespace != new.namespace:
        return f"the namespace is now {new.namespace}"
    if old.stores.get(before.store) != new.stores.get(rule.store):
        return "its store has changed"
    if before.parts != rule.parts:
        return f"its key is now {', '.join(rule.parts)} and was {', '.join(before.parts)}"
    if not old.hashes_as(new):
        return "its keys are hashed with another pepper"
    if not old.counts_addresses_as(new):
        return "its addresses are counted by other prefixes"
    return ""


def _left_behind(before: Rule, rule: Rule) -> Iterator[tuple[str, Limit, Limit]]:
    """Yield plan, old limit and new limit for each limit whose state is no longer read."""
    for plan, limits in (rule.plans or {}).items():
        old = (before.plans or {}).get(plan, ())
        left = [each for each in old if each.identity not in {limit.identity for limit in limits}]
        come = [each for each in limits if each.identity not in {limit.identity for limit in old}]
        for gone, limit in zip(left, come, strict=False):
            if gone.in_flight == limit.in_flight:
                yield plan, gone, limit


def _with_numbers_of(limit: Limit, left: Limit) -> Limit:
    """Return the old limit with the numbers of its successor.

    Limits over different periods cannot be compared exactly: then the more generous numbers are used.
    """
    amount, burst = limit.amount, limit.burst
    if limit.period_us != left.period_us and not left.in_flight:
        amount = max(left.amount, -(-limit.amount * left.period_us // limit.period_us))
        burst = max(left.burst, amount)
    # The state has a field for a block, so the limit needs one; a short one, as a refusal here must not block.
    block = _short_block(limit, left) if left.block_us else None
    try:
        return left.replace(amount=amount, burst=burst if left.step.LENDS else amount, block=block)
    except InvalidLimit:  # the algorithm does not accept these numbers
        return left


def _lasts(left: Limit) -> int:
    """Return for how many microseconds an old count can still matter."""
    refills = -(-left.burst * left.period_us // max(1, left.amount))
    longest = left.period_us + (DAY if left.calendar else 0)  # the clocks of its zone may be changed meanwhile
    blocked = left.growth[0] + left.growth[-1] if left.growth else left.block_us
    return max(longest, blocked, refills if left.step.LENDS else 0)


def _short_block(limit: Limit, left: Limit) -> str | float:
    """Return a block of the kind of the old limit: that of its successor, or the shortest one."""
    if not left.growth:
        return limit.block or 0.001
    return limit.written_block if limit.growth else "1 ms, 2 ms"


def _limits(rule: Rule) -> Iterator[Limit]:
    for limits in (rule.plans or {}).values():
        yield from limits
