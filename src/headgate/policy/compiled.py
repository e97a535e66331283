"""A compiled policy: rules bound to their stores. It decides about a request before the app is called.

The steps are generators. They yield the result of a gate, a decision or an awaitable, and are sent the decision, so
that threads and event loops run the same steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import Any, Final

from headgate.caches import ClearedWhenFull
from headgate.engine import Decision
from headgate.errors import HeadgateError, InvalidPolicy
from headgate.layout import MOST_CALLS
from headgate.policy.action import LETS_PASS
from headgate.policy.client_key import fallback_key
from headgate.policy.counting import (
    ALLOWED,
    DEGRADED_ALLOWED,
    DELAYED,
    EXEMPT,
    ITSELF,
    OBSERVED,
    REFUSED,
    PolicyCounts,
)
from headgate.policy.fast_path import FastPath, cost_in_fast_path
from headgate.policy.gates import Outage, gate_on
from headgate.policy.key import Params, key_of, keys_of
from headgate.policy.key_escaping import UnusablePart
from headgate.policy.no_address import warn_of_no_address
from headgate.policy.outcome import (
    FORBIDDEN,
    PASS,
    Charge,
    LimitGroup,
    Outcome,
    refused,
    refused_unclear,
    refused_without,
)
from headgate.policy.over_limit import note_over_limit
from headgate.policy.policy import Policy
from headgate.policy.policy_bans import PolicyBans
from headgate.policy.questions import NOBODY, Question, Round, flat, passing, put_together
from headgate.policy.rule import Rule
from headgate.policy.rule_index import MatchedRules
from headgate.policy.settling import charge_refused, refund, release
from headgate.policy.values import Unclear
from headgate.policy.view import RequestView
from headgate.policy.watched import count_watched
from headgate.steps import Steps
from headgate.stores import AsyncStore, Store
from headgate.wording import log_of

MOST_GROUPS: Final = 4096
"""The most combinations of rules and plans whose groups are cached."""

log = log_of("headgate.policy")


class CompiledPolicy:
    """Decides about requests. `stores` are by name; the store "" is for rules that name none."""

    def __init__(
        self, policy: Policy, stores: Mapping[str, Store], *, awaited: bool, counts: PolicyCounts | None = None
    ) -> None:
        self.policy = policy
        self.stores = stores
        self.counts = counts or PolicyCounts()
        """Counts the results of the rules; those of an edge outlive its policy."""
        self._gates: dict[str, Any] = {}
        for name, store in stores.items():
            self._gates[name] = gate_on(store, policy.namespace, self.counts.gauges, awaited)
        self._bans = PolicyBans(policy, stores, awaited, self.counts)
        self.awaits = awaited and any(isinstance(store, AsyncStore) for store in stores.values())
        """Whether some gates must be awaited."""
        self._groups: ClearedWhenFull[tuple[Any, ...], tuple[LimitGroup, ...]] = ClearedWhenFull(MOST_GROUPS)
        self._outage = Outage(policy.namespace, stores, self.counts.gauges)
        self.looks_first = any((policy.allow, policy.deny, policy.plan_header, policy.plan_claim))
        """Whether each request must be examined before the rules."""

    def bind(self) -> None:
        """Bind every limit of every plan to its store now, so that errors appear at the start and not at a request."""
        errors = []
        for rule in () if self.policy.mode == "off" else self.policy.every_rule:
            for limits in dict.fromkeys((rule.plans or {}).values()):
                try:
                    for start in range(0, len(limits), MOST_CALLS):
                        self._gates[rule.store].asker(limits[start : start + MOST_CALLS])
                except HeadgateError as reason:
                    errors.append(f"rule {rule.name}: {reason}")
        if errors:
            raise InvalidPolicy(errors)

    def fast_path(self, found: MatchedRules, method: str, route: str | None = None) -> FastPath | None:
        """Return the fast path of these requests, at `route` for an endpoint; None if each must be examined."""
        if self.awaits or self.looks_first or not found.set.plain or self._bans.elsewhere:
            return None
        asked: list[Question] = []
        for rule in found.set.rules:
            cost = cost_in_fast_path(rule, method)
            if cost is None:
                return None
            asked.append((rule, "", cost, rule.limits_for(NOBODY)))
        groups = self._grouped(NOBODY, asked) if asked else ()
        if len(groups) != 1:
            return None
        group = groups[0]
        if group.counted is None:
            try:
                counting = self._bans.counting(group)
                group.counted = group.gate.counted_asker(group.limits, counting)
            except HeadgateError:  # the store has no room now: each request is examined
                return None
        return FastPath(group, found.pairs, flat(group, asked)[1], route)

    def before(self, view: RequestView) -> Steps[Outcome]:
        """Decide about a request, before the app is called."""
        try:
            asked = self._asked(view)
        except Unclear as reason:
            asked = refused_unclear(reason)
        if isinstance(asked, Outcome):
            if asked.kind == "pass":
                return asked
            observes = self.policy.mode == "observe"
            self.counts.add(ITSELF if asked.rule is None else asked.rule.name, OBSERVED if observes else REFUSED)
            if observes:
                log.info("the policy (observe) would refuse: %s", asked.detail or asked.status)
            return PASS if observes else asked
        rounds, watched = asked
        if self._bans.may_have() and (banned := (yield from self._bans.refusal(view, rounds, self))):
            return banned
        seen = (yield from count_watched(view, watched, self)) if watched else []
        try:
            outcome = (yield from self._take(view, rounds)) if rounds else PASS
        except BaseException:
            yield from refund(seen)
            raise
        if outcome.kind != "pass":
            yield from release(seen)
        elif seen or view.marked:
            return outcome._replace(charges=(*outcome.charges, *seen), marked=view.marked)
        return outcome

    def _asked(self, view: RequestView) -> Outcome | tuple[list[Round], list[Question]]:
        """Return the questions of the rules and of those that let pass; or an outcome that needs no store."""
        policy = self.policy
        if policy.mode == "off":
            return PASS
        if view.unclear is not None:
            return refused_unclear(view.unclear)
        if view.plan is None and (policy.plan_header is not None or policy.plan_claim is not None):
            view.plan = policy.plan_of(view)
        if policy.allow is not None and policy.allow(view):
            self.counts.add(ITSELF, EXEMPT)
            return PASS
        if policy.deny is not None and policy.deny(view):
            return Outcome("deny", FORBIDDEN)
        exempted: list[Rule] = []
        found = policy.matching(view, exempted)
        for rule in exempted:
            self.counts.add(rule.name, EXEMPT)
        return self._of_rules(view, found) if found else PASS

    def _of_rules(
        self, view: RequestView, found: Sequence[tuple[Rule, Params]]
    ) -> Outcome | tuple[list[Round], list[Question]]:
        """Return the same as `_asked`, for the rules that apply to a request."""
        asked: list[Question] = []
        watched: list[Question] = []
        looked: list[Round] = []
        more: list[Round] = []
        for rule, params in found:
            lets_pass = rule.act.kind in LETS_PASS
            questions = self._questions(rule, view, params)
            if isinstance(questions, Outcome):
                if not lets_pass:
                    return questions
                note_over_limit(view, rule, None, questions.detail or questions.status)
                self.counts.add(rule.name, OBSERVED)
            elif not questions:
                self.counts.add(rule.name, EXEMPT)
            elif lets_pass:
                watched += questions
            elif rule.count.requests is not None and not rule.count.requests.holds(view):
                looked += [([question], True) for question in questions]
            else:
                asked.append(questions[0])
                if len(questions) > 1:
                    more += [([question], False) for question in questions[1:]]
        return [*looked, *([(asked, False)] if asked else ()), *more], watched

    def _questions(self, rule: Rule, view: RequestView, params: Params) -> Outcome | list[Question]:
        """Return the questions of a rule, one for each key; none if the request is skipped; or a refusal."""
        try:
            key = None if rule.repeated == "each" else key_of(rule.key, view, params)
            keys = self.keys(rule, view, params) if key is None else (key,)
            if isinstance(keys, Outcome):
                return keys
            cost, limits = rule.cost.before(view), rule.limits_for(view)
        except Unclear as reason:
            return refused_unclear(reason)
        except UnusablePart as reason:
            raise InvalidPolicy([f"rule {rule.name}: key: {reason}"]) from None
        return [(rule, keys[0], cost, limits)] if len(keys) == 1 else [(rule, key, cost, limits) for key in keys]

    def keys(self, rule: Rule, view: RequestView, params: Params) -> Outcome | Sequence[str]:
        """Return the keys to count: one, or several with `repeated: each`; none if it is skipped; or a refusal."""
        try:
            key = key_of(rule.key, view, params)
            return (key,) if key is not None else self._instead(rule, view, params)
        except Unclear:
            if rule.repeated != "each":
                raise
            instead = fallback_key(view, rule.client_key) if rule.missing == "ip" else None
            keys = keys_of(rule.key, view, params, instead)
            return keys or (refused_without(rule, view, params) if rule.missing == "deny" else ())

    def _instead(self, rule: Rule, view: RequestView, params: Params) -> Outcome | Sequence[str]:
        """Return the same as `keys`, for a request without a part of the key."""
        if rule.missing == "skip":
            return ()
        if rule.missing == "deny":
            return refused_without(rule, view, params)
        if not view.client:
            warn_of_no_address(view)
        key = key_of(rule.key, view, params, fallback_key(view, rule.client_key))
        return () if key is None else (key,)

    def _take(self, view: RequestView, rounds: list[Round]) -> Steps[Outcome]:
        """Take one decision for each store, in order; if a later one refuses, the earlier charges are given back."""
        charges: list[Charge] = []
        passed: list[Charge] = []
        counted: list[tuple[Sequence[Rule], Sequence[str], int]] = []
        delay = 0
        groups: list[tuple[LimitGroup, list[Question]]] = []
        for asked, looks in rounds:
            groups += zip(self._grouped(view, asked, looks), repeat(asked), strict=False)
        for group, asked in groups:
            keys, costs = flat(group, asked)
            try:
                decision: Decision = yield group.ask(keys, costs)
            except Exception as error:  # no error of a store may fail the request
                instead = self._outage.answer(group, keys, costs, error)
                if isinstance(instead, Outcome):
                    yield from refund(charges)
                    self.counts.closed(instead)
                    return instead
                counted.append((group.owners, keys, DEGRADED_ALLOWED))  # also if a local share decides
                if instead is None:
                    continue
                (group, decision), costs = instead, instead[1].costs
            except BaseException:
                yield from refund(charges)
                raise
            decision = decision if group.bounds is None else group.bounds.as_written(decision)
            if not decision.allowed:
                yield from refund(charges)
                return (yield from self._refuse(group, decision, costs))
            delay = max(delay, held := group.delay(decision) if group.delays else 0)
            counted += () if group.degraded else ((group.owners, keys, DELAYED if held else ALLOWED),)
            passed.append(Charge(group, decision))
            if group.follows or group.delays or group.holds_permits or (len(groups) > 1 and not group.looks):
                charges.append(passed[-1])
        self.counts.admitted(counted)
        return passing(passed, delay, tuple(charges)) if passed else PASS

    def _refuse(self, group: LimitGroup, decision: Decision, costs: tuple[int, ...]) -> Steps[Outcome]:
        self.counts.refused(group, decision)
        yield from self._bans.spread(group, decision)
        if group.counts_refused:
            decision = yield from charge_refused(group, decision, costs)
        return refused(group, decision)

    def _grouped(self, view: RequestView, asked: list[Question], looks: bool = False) -> tuple[LimitGroup, ...]:
        """Return the groups of a request's rules, one for each store; with `looks`, groups that charge nothing."""
        if len(asked) == 1 and asked[0][0].limits_of is None:
            name: tuple[Any, ...] = (asked[0][0].index, view.plan, looks)
        else:
            name = tuple((rule.index, view.plan if rule.limits_of is None else limits) for rule, _, _, limits in asked)
            name = (*name, looks)
        groups = self._groups.get(name)
        return self._groups.keep(name, put_together(asked, self._gates, looks)) if groups is None else groups
