"""A judge: a policy on its stores. What happens to one request, before the app and after it.

The steps are generators. They yield what a gate gave, a decision or something to await, and are sent the decision: so
threads and event loops run the same steps.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

from headgate.algorithms import bucket
from headgate.call import Call, checked_cost
from headgate.engine import Decision
from headgate.engine.modes import LONGEST_WAIT, MOST_CALLS
from headgate.errors import HeadgateError, StoreError
from headgate.limit import Limit
from headgate.policy.key import Params, fallback_key, join
from headgate.policy.policy import Policy
from headgate.policy.rule import Rule
from headgate.policy.steps import Steps, run, run_awaiting
from headgate.policy.view import RequestView
from headgate.stores import AsyncStore, MemoryStore, Store

Kind = Literal["pass", "deny", "shadow"]
Question = tuple[Rule, str, int]
"""A rule, the key it counts by, and what the request costs."""
FORBIDDEN: Final = 403
TOO_MANY: Final = 429
UNAVAILABLE: Final = 503
MOST_GROUPS: Final = 4096
"""Combinations of rules and plans whose limits are not put together again."""

log = logging.getLogger("headgate.policy")


class Group:
    """Limits of one store that one decision is taken over, and whose rule each of them is."""

    __slots__ = ("ask", "counts_refused", "delays", "disclose", "follows", "gate", "limits", "owners", "store")

    def __init__(self, store: str, gate: Any, pairs: Sequence[tuple[Rule, Limit]]) -> None:  # noqa: ANN401
        self.store = store
        self.gate = gate
        self.ask: Callable[..., Any]
        self.owners = tuple(rule for rule, _ in pairs)
        self.limits = tuple(limit for _, limit in pairs)
        self.disclose = tuple(rule.disclose for rule in self.owners)
        try:
            self.ask = gate.asker(self.limits)
        except StoreError as reason:  # no room for so many limits: answered as if the store were away
            self.ask = _failing(reason)
        self.counts_refused = any(rule.counts_refused for rule in self.owners)
        self.delays = any(rule.act.kind == "delay" for rule in self.owners)
        self.follows = any(rule.follows_response for rule in self.owners)

    def owner(self, decision: Decision) -> Rule:
        """The rule whose limit binds."""
        return self.owners[0] if len(self.owners) == 1 else self.owners[self.limits.index(decision.binding)]


def _failing(reason: StoreError) -> Callable[..., Any]:
    def ask(keys: tuple[str, ...], costs: tuple[int, ...]) -> Any:  # noqa: ANN401
        raise StoreError(str(reason))

    return ask


class Charge(NamedTuple):
    """What was charged for a request, until its response says whether that was right."""

    group: Group
    decision: Decision


class Ruling(NamedTuple):
    """What happens to a request."""

    kind: Kind
    status: int = 200
    rule: Rule | None = None
    """Whose no it is; of a yes, whose limit is nearest."""
    decision: Decision | None = None
    group: Group | None = None
    """What the decision was over."""
    delay_us: int = 0
    """How long to hold the request before the app is called."""
    charges: tuple[Charge, ...] = ()
    """What the response may still change."""


PASS: Final = Ruling("pass")


class Judge:
    """Rules on requests. `stores` are by name; the one called "" is for rules that name none."""

    def __init__(self, policy: Policy, stores: Mapping[str, Store], *, awaited: bool) -> None:
        self.policy = policy
        self._gates: dict[str, Any] = {}
        self._local = MemoryStore()
        for name, store in stores.items():
            if awaited and isinstance(store, AsyncStore):
                self._gates[name] = store.async_gate(policy.namespace, _SOME, "raise")
            else:
                self._gates[name] = store.gate(policy.namespace, _SOME, "raise")
        self.awaits = awaited and any(isinstance(store, AsyncStore) for store in stores.values())
        """Some of the gates have to be awaited."""
        self._groups: dict[tuple[Any, ...], tuple[Group, ...]] = {}

    def before(self, view: RequestView) -> Steps[Ruling]:
        """Rule on a request, before the app is called."""
        policy = self.policy
        if view.plan is None and (policy.plan_header is not None or policy.plan_claim is not None):
            view.plan = policy.plan_of(view)
        if policy.allow is not None and policy.allow(view):
            return PASS
        if policy.deny is not None and policy.deny(view):
            return Ruling("deny", FORBIDDEN)
        found = policy.matching(view)
        if not found:
            return PASS
        asked: list[Question] = []
        watched: list[Question] = []
        for rule, params in found:
            key = self._key(rule, view, params)
            if key is None or (isinstance(key, Ruling) and rule.act.kind == "observe"):
                continue
            if isinstance(key, Ruling):
                return key
            (watched if rule.act.kind == "observe" else asked).append((rule, key, rule.cost.before(view)))
        seen: list[Charge] = []
        for question in watched:
            yield from self._watch(view, question, seen)
        ruling = (yield from self._take(view, asked)) if asked else PASS
        return ruling._replace(charges=(*ruling.charges, *seen)) if seen and ruling.kind == "pass" else ruling

    def _key(self, rule: Rule, view: RequestView, params: Params) -> str | Ruling | None:
        """What is counted; None where the rule does not apply, or a refusal."""
        parts = []
        for part in rule.key:
            value = part(view, params)
            if value is None:
                if rule.missing == "skip":
                    return None
                if rule.missing == "deny":
                    return Ruling("deny", FORBIDDEN, rule)
                value = fallback_key(view)
                if value is None:  # nobody knows who this is: a failure, not a budget that strangers share
                    return Ruling("deny", FORBIDDEN, rule) if rule.on_error in ("deny", "raise") else None
            parts.append(value)
        return parts[0] if len(parts) == 1 else join(parts)

    def _take(self, view: RequestView, asked: list[Question]) -> Steps[Ruling]:
        """One decision for each store, in order; what earlier ones charged is given back when a later one refuses."""
        charges: list[Charge] = []
        nearest: tuple[Decision, Group] | None = None
        delay = 0
        groups = self._grouped(view, asked)
        for group in groups:
            keys, costs = _flat(group, asked)
            try:
                decision: Decision = yield group.ask(keys, costs)
            except StoreError as error:
                instead = self._instead(group, keys, costs, error)
                if isinstance(instead, Ruling):
                    yield from self._give_back(charges)
                    return instead
                if instead is None:
                    continue
                group, decision = instead
                costs = tuple(call.cost for call in decision.calls)
            except BaseException:
                yield from self._give_back(charges)
                raise
            if not decision.allowed:
                yield from self._give_back(charges)
                rule = group.owner(decision)
                if group.counts_refused:
                    owners = zip(group.owners, costs, strict=True)
                    more = tuple(cost if owner.counts_refused else 0 for owner, cost in owners)
                    yield from self._charge_more(group, decision, more)
                if rule.act.kind == "shadow":
                    return Ruling("shadow", rule.act.status, rule, decision, group)
                return Ruling("deny", TOO_MANY, rule, decision, group)
            if group.delays:
                delay = max(delay, _delay(group, decision, costs))
            if group.follows or group.delays or len(groups) > 1:
                charges.append(Charge(group, decision))
            if nearest is None or decision.remaining * nearest[0].limit < nearest[0].remaining * decision.limit:
                nearest = decision, group
        if nearest is None:
            return PASS
        decision, group = nearest
        return Ruling("pass", 200, group.owner(decision), decision, group, delay, tuple(charges))

    def _watch(self, view: RequestView, question: Question, seen: list[Charge]) -> Steps[None]:
        """A dry run: counted, said in the log, and admitted."""
        rule = question[0]
        for group in self._grouped(view, [question]):
            try:
                decision: Decision = yield group.ask(*_flat(group, [question]))
            except StoreError as error:
                log.info("rule %s (observe) could not ask: %s", rule.name, error)
            else:
                if not decision.allowed:
                    log.info("rule %s (observe) would refuse: %r", rule.name, decision)
                elif group.follows:
                    seen.append(Charge(group, decision))

    def _grouped(self, view: RequestView, asked: list[Question]) -> tuple[Group, ...]:
        """The groups of a request's rules, one for each store."""
        if len(asked) == 1 and asked[0][0].limits_of is None:
            name: tuple[Any, ...] = (asked[0][0].index, view.plan)
        else:
            name = tuple(
                (rule.index, view.plan if rule.limits_of is None else rule.limits_for(view)) for rule, _, _ in asked
            )
        groups = self._groups.get(name)
        if groups is None:
            if len(self._groups) >= MOST_GROUPS:
                self._groups.clear()
            groups = self._groups[name] = self._put_together(view, asked)
        return groups

    def _put_together(self, view: RequestView, asked: list[Question]) -> tuple[Group, ...]:
        by_store: dict[str, list[tuple[Rule, Limit]]] = {}
        for rule, _, _ in asked:
            for limit in rule.limits_for(view):
                by_store.setdefault(rule.store, []).append((rule, limit))
        return tuple(
            Group(store, self._gates[store], pairs[start : start + MOST_CALLS])
            for store, pairs in by_store.items()
            for start in range(0, len(pairs), MOST_CALLS)  # a decision has so many; more are as several stores
        )

    def _instead(
        self, group: Group, keys: tuple[str, ...], costs: tuple[int, ...], error: StoreError
    ) -> Ruling | tuple[Group, Decision] | None:
        """The store cannot answer: each rule by its own `on_error`. A refusal, memory's answer, or None to go on."""
        log.warning("no answer from the store (%s): each rule follows its on_error", error)
        local = []
        for rule, limit, key, cost in zip(group.owners, group.limits, keys, costs, strict=True):
            if rule.on_error in ("deny", "raise"):
                return Ruling("deny", UNAVAILABLE, rule)
            if rule.on_error == "local":
                local.append((rule, limit, key, cost))
        if not local:
            return None
        pairs = [(rule, limit) for rule, limit, _, _ in local]
        instead = Group(group.store, self._local.gate(self.policy.namespace, _SOME), pairs)
        try:
            return instead, instead.ask(tuple(key for _, _, key, _ in local), tuple(cost for *_, cost in local))
        except StoreError:
            return None

    def release(self, ruling: Ruling) -> Steps[None]:
        """A request that was held has gone away before the app was called."""
        return self._give_back(list(ruling.charges))

    def after(self, ruling: Ruling, status: int, header: Callable[[str], str | None]) -> Steps[None]:
        """Count what the response says: give back what does not count, charge what cost more."""
        for group, decision in ruling.charges:
            costs = [call.cost for call in decision.calls]
            real = [_real(rule, cost, status, header) for rule, cost in zip(group.owners, costs, strict=True)]
            unused = tuple(max(0, cost - actual) for cost, actual in zip(costs, real, strict=True))
            try:
                if any(unused):
                    yield group.gate.refund(decision, unused)
                more = tuple(max(0, actual - cost) for cost, actual in zip(costs, real, strict=True))
                yield from self._charge_more(group, decision, more)
            except StoreError as error:
                log.warning("the response could not be counted: %s", error)

    def _charge_more(self, group: Group, decision: Decision, more: tuple[int, ...]) -> Steps[None]:
        """Charge on top, as far as each limit can owe."""
        for call, extra in zip(decision.calls, more, strict=True):
            while extra > 0:
                units = min(extra, call.limit.burst)
                charged: Decision = yield group.gate.decide(Call(call.limit, call.key, units), wait_us=LONGEST_WAIT)
                if not charged.allowed:
                    break
                extra -= units

    def _give_back(self, charges: list[Charge]) -> Steps[None]:
        for group, decision in charges:
            try:
                yield group.gate.refund(decision)
            except StoreError as error:
                log.warning("a charge could not be given back and stays: %s", error)


_SOME: Final = (Limit(1, "hour", name="headgate"),)
"""A gate is opened for limits; a judge asks about those of its rules."""


def _flat(group: Group, asked: list[Question]) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """A key and a cost for each limit of a group."""
    if len(asked) == 1:
        _, key, cost = asked[0]
        return (key,) * len(group.limits), (cost,) * len(group.limits)
    by_rule = {rule.index: (key, cost) for rule, key, cost in asked}
    pairs = [by_rule[rule.index] for rule in group.owners]
    return tuple(key for key, _ in pairs), tuple(cost for _, cost in pairs)


def _delay(group: Group, decision: Decision, costs: tuple[int, ...]) -> int:
    """How long rules that delay hold the request: until its place in their queue has come."""
    held = [
        bucket.departs(bucket.Params(*limit.params), verdict, cost)
        for rule, limit, verdict, cost in zip(group.owners, group.limits, decision.verdicts, costs, strict=True)
        if rule.act.kind == "delay"
    ]
    return max(held)


def _real(rule: Rule, cost: int, status: int, header: Callable[[str], str | None]) -> int:
    """What a request cost, now that the response is known."""
    if rule.counts is not None and status not in rule.counts:
        return 0
    for statuses, told in rule.cost.after_status:
        if status in statuses:
            return told
    if rule.cost.after_header is not None:
        text = header(rule.cost.after_header)
        try:
            return cost if text is None else checked_cost(int(text.strip()))
        except (ValueError, HeadgateError):
            log.warning("rule %s: the header %s is no cost: %r", rule.name, rule.cost.after_header, text)
    return cost


__all__ = ["PASS", "Group", "Judge", "Ruling", "Steps", "run", "run_awaiting"]
