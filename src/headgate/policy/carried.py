"""Budgets across a reload: the old limit of a changed rule goes on beside the new one until its counts have run out.

A state is filed under a limit's name, algorithm and period. A rule that changes one of them would begin with an unused
budget, and every client could spend a second one. So the old limit stays in the rule for as long as its counts matter.
It has the numbers of its successor meanwhile: a reload that raises a limit takes effect at once.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from headgate.clock import SECOND
from headgate.errors import InvalidLimit
from headgate.limit import Limit
from headgate.policy.policy import Policy
from headgate.policy.rule import Rule


class Carried(NamedTuple):
    """A limit of an earlier policy, in a plan of a rule of this one."""

    rule: str
    plan: str
    limit: Limit
    until_us: int


class Reload(NamedTuple):
    """What the counts under one policy mean to the next."""

    carried: tuple[Carried, ...]
    told: tuple[tuple[int, str], ...]
    """For the log, with its level: rules whose counts are carried, and rules that begin anew."""
    at_us: int
    """When the policies were compared."""

    def taken_up(self, now_us: int) -> tuple[Carried, ...]:
        """The carried limits from now on: until now the old policy has counted."""
        return tuple(each._replace(until_us=each.until_us + now_us - self.at_us) for each in self.carried)


def compare(old: Policy, new: Policy, earlier: Sequence[Carried], now_us: int) -> Reload:
    """The limits of `old` that go on beside those of `new`, and those that `old` had carried `earlier`."""
    told: list[tuple[int, str]] = []
    carried: list[Carried] = []
    names: dict[str, str] = {}
    for before, rule in _pairs(old, new):
        changed = _other_counts(old, new, before, rule)
        if changed:
            told.append((logging.WARNING, f"rule {rule.name} has new counts: {changed}"))
            continue
        names[before.name] = rule.name
        for plan, left, limit in _left_behind(before, rule):
            lasts = _lasts(left)
            carried.append(Carried(rule.name, plan, _with_numbers_of(limit, left), now_us + lasts))
            told.append((logging.INFO, f"rule {rule.name}: {left} is counted beside {limit} for {lasts / SECOND:g} s"))
    going = (each for each in earlier if each.rule in names and each.until_us > now_us)
    carried += [each._replace(rule=names[each.rule]) for each in going]
    there = {limit.identity for rule in new.rules for limit in _limits(rule)}
    by_state = {(each.plan, each.limit.identity): each for each in reversed(carried)}
    kept = (each for each in by_state.values() if each.limit.identity not in there)
    return Reload(tuple(kept), tuple(told), now_us)


def with_carried(policy: Policy, carried: Sequence[Carried]) -> Policy:
    """The policy, with limits of earlier ones in its rules."""
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
    """Each rule that was there before, as it was: under its name, or under another name and otherwise the same."""
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
    """A rule as far as it can be compared, without its name."""
    match = rule.match
    paths = tuple(pattern.text for pattern in match.patterns)
    plans = tuple(
        (plan, *(str(limit.replace(name="any")) for limit in limits)) for plan, limits in (rule.plans or {}).items()
    )
    return match.methods, paths, len(match.conditions), match.messages, rule.parts, rule.store, plans


def _other_counts(old: Policy, new: Policy, before: Rule, rule: Rule) -> str:
    """Why nothing that was counted under a rule can be found any more; empty where it can be."""
    if old.namespace != new.namespace:
        return f"the namespace is now {new.namespace}"
    if old.stores.get(before.store) != new.stores.get(rule.store):
        return "its store has changed"
    if before.parts != rule.parts:
        return f"its key is now {', '.join(rule.parts)} and was {', '.join(before.parts)}"
    if not old.hashes_as(new):
        return "its keys are hashed with another pepper"
    return ""


def _left_behind(before: Rule, rule: Rule) -> Iterator[tuple[str, Limit, Limit]]:
    """By plan: a limit whose state nothing reads any more, and the limit that has come instead."""
    for plan, limits in (rule.plans or {}).items():
        old = (before.plans or {}).get(plan, ())
        left = [each for each in old if each.identity not in {limit.identity for limit in limits}]
        come = [each for each in limits if each.identity not in {limit.identity for limit in old}]
        for gone, limit in zip(left, come, strict=False):
            if gone.in_flight == limit.in_flight:
                yield plan, gone, limit


def _with_numbers_of(limit: Limit, left: Limit) -> Limit:
    """The limit that is left behind, allowing as much as its successor does.

    Over another period the two cannot be compared exactly: there it allows the more generous of both.
    """
    amount, burst = limit.amount, limit.burst
    if limit.period_us != left.period_us and not left.in_flight:
        amount = max(left.amount, -(-limit.amount * left.period_us // limit.period_us))
        burst = max(left.burst, amount)
    # A block is filed beside the counts, so that there has to be one; a refusal here is to set none that lasts.
    block = (limit.block or 0.001) if left.block_us else None
    try:
        return left.replace(amount=amount, burst=burst if left.step.LENDS else amount, block=block)
    except InvalidLimit:  # numbers that this algorithm cannot have
        return left


def _lasts(left: Limit) -> int:
    """For how long, in microseconds, something that was counted can still matter."""
    refills = -(-left.burst * left.period_us // left.amount)
    return max(left.period_us, left.block_us, refills if left.step.LENDS else 0)


def _limits(rule: Rule) -> Iterator[Limit]:
    for limits in (rule.plans or {}).values():
        yield from limits
