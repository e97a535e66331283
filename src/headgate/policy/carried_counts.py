"""Budgets across a reload: the old limit of a changed rule is counted beside the new one until its counts expire.

A store keeps a state by the limit's name, algorithm and period. A rule that changes one of them would begin with an
unused budget, and every client could spend a second one. So the old limit stays in the rule for as long as its counts
matter. Meanwhile it has the numbers of its successor: a reload that raises a limit takes effect at once.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from headgate.clock import DAY, SECOND
from headgate.errors import InvalidLimit
from headgate.limit import Limit
from headgate.policy.policy import Policy
from headgate.policy.rule import Rule
from headgate.policy.rule_limits import DEFAULT_PLAN

NAMED_BY_PLACE: Final = re.compile(r"rule-\d+")
MOVED: Final = (
    "rule {} is about other requests than before, and goes on with the same counts: a rule without a name is known by "
    "its place in the list; give it a name"
)
ALIKE: Final[tuple[Callable[[Limit], Any], ...]] = (
    lambda limit: (limit.in_flight, limit.period_us, limit.name),
    lambda limit: (limit.in_flight, limit.period_us, limit.algorithm),
    lambda limit: (limit.in_flight, limit.period_us),
    lambda limit: (limit.in_flight, limit.name),
    lambda limit: limit.in_flight,
)
"""The properties of a limit that tell its successor, the ones that tell most first."""


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
        if before is None:
            lines.append((logging.INFO, f"rule {rule.name} is new, and so are its counts"))
            continue
        changed = _other_counts(old, new, before, rule)
        if changed:
            lines.append((logging.WARNING, f"rule {rule.name} has new counts: {changed}"))
            continue
        if _moved(before, rule):
            lines.append((logging.WARNING, MOVED.format(rule.name)))
        names[before.name] = rule.name
        for plan, left, limit in _left_behind(before, rule):
            lasts = _lasts(left)
            carried.append(CarriedCounts(rule.name, plan, _with_numbers_of(limit, left), now_us + lasts))
            lines.append((logging.INFO, f"rule {rule.name}: {left} is counted beside {limit} for {lasts / SECOND:g} s"))
    going = (each for each in earlier if each.rule in names and each.until_us > now_us)
    carried += [each._replace(rule=names[each.rule]) for each in going]
    by_state = {(each.plan, each.limit.identity): each for each in reversed(carried)}
    places = _places(new)
    kept = (each for each in by_state.values() if not _is_counted(each, places.get(each.limit.identity, ())))
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


def _pairs(old: Policy, new: Policy) -> Iterator[tuple[Rule | None, Rule]]:
    """Yield old and new version of each rule: of the same name, or else of other names and about the same requests.

    Of several such rules, the one with the same limits is the old version. A rule without one is new.
    """
    by_name = {rule.name: rule for rule in old.rules}
    names = {rule.name for rule in new.rules}
    gone = {rule.name: rule for rule in old.rules if rule.name not in names}
    come = []
    for rule in new.rules:
        if rule.name in by_name:
            yield by_name[rule.name], rule
        else:
            come.append(rule)
    for alike in (lambda rule: (_requests(rule), _plans(rule)), _requests):
        found: dict[Any, list[Rule]] = {}
        for rule in reversed(gone.values()):
            found.setdefault(alike(rule), []).append(rule)
        rest = []
        for rule in come:
            if same := found.get(alike(rule)):
                before = same.pop()
                del gone[before.name]
                yield before, rule
            else:
                rest.append(rule)
        come = rest
    yield from ((None, rule) for rule in come)


def _moved(before: Rule, rule: Rule) -> bool:
    """Return whether a rule seems to have the name of another one only because rules were added or removed above it."""
    return NAMED_BY_PLACE.fullmatch(rule.name) is not None and _requests(before) != _requests(rule)


def _requests(rule: Rule) -> tuple[Any, ...]:
    """Return the fields of a rule that say which requests it counts, and by which key."""
    match = rule.match
    paths = tuple(pattern.text for pattern in match.patterns)
    return match.methods, paths, len(match.conditions), match.messages, rule.parts, rule.store


def _plans(rule: Rule) -> tuple[Any, ...]:
    """Return the limits of a rule, without their names."""
    plans = (rule.plans or {}).items()
    return tuple((plan, *(str(limit.replace(name="any")) for limit in limits)) for plan, limits in plans)


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
    was = before.plans or {}
    for plan, limits in (rule.plans or {}).items():
        old = was.get(plan, was.get(DEFAULT_PLAN, ()))  # by which requests of a plan that was not listed were counted
        left = [each for each in old if each.identity not in {limit.identity for limit in limits}]
        come = [each for each in limits if each.identity not in {limit.identity for limit in old}]
        for gone, limit in _successors(left, come):
            yield plan, gone, limit


def _successors(left: list[Limit], come: list[Limit]) -> Iterator[tuple[Limit, Limit]]:
    """Yield old and new limits that belong together: the most alike first, then those of one kind, in their order.

    A list may have lost or got a limit at the same time, so that places alone would pair an hour with a day.
    """
    for alike in ALIKE:
        for gone in tuple(left):
            limit = next((each for each in come if alike(each) == alike(gone)), None)
            if limit is not None:
                left.remove(gone)
                come.remove(limit)
                yield gone, limit


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


def _places(policy: Policy) -> dict[str, list[tuple[str, str]]]:
    """Return the rules and plans in which each limit stands, by its identity."""
    places: dict[str, list[tuple[str, str]]] = {}
    for rule in policy.rules:
        for plan, limits in (rule.plans or {}).items():
            for limit in limits:
                places.setdefault(limit.identity, []).append((rule.name, plan))
    return places


def _is_counted(carried: CarriedCounts, places: Iterable[tuple[str, str]]) -> bool:
    """Return whether a request may meet the limit without its being carried: other plans of its rule do not matter."""
    return any(rule != carried.rule or plan == carried.plan for rule, plan in places)
