"""Requests of banned keys: what a policy answers, before it asks any limit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headgate.algorithms import NEVER
from headgate.engine import Counting, Decision
from headgate.layout import ANSWER_FIELDS
from headgate.limit import LONGEST_BAN, Limit
from headgate.policy.bans import Bans, blocks_of
from headgate.policy.counting import OBSERVED, REFUSED, PolicyCounts
from headgate.policy.outcome import TOO_MANY, LimitGroup, Outcome, refused
from headgate.policy.over_limit import note_over_limit
from headgate.policy.questions import Question, Round
from headgate.policy.rule import Rule
from headgate.policy.view import RequestView
from headgate.steps import Steps
from headgate.stores import Store
from headgate.wording import log_of

if TYPE_CHECKING:
    from headgate.policy.compiled import CompiledPolicy
    from headgate.policy.policy import Policy

log = log_of("headgate.policy")


class PolicyBans:
    """The bans of every rule of a policy, on the stores of the rules."""

    def __init__(self, policy: Policy, stores: Mapping[str, Store], awaited: bool, counts: PolicyCounts) -> None:
        self._of_store = {name: Bans(store, policy.namespace, awaited) for name, store in stores.items()}
        every = tuple(self._of_store.values())
        self.may_have = every[0].may_have if len(every) == 1 else lambda: any(bans.may_have() for bans in every)
        """Returns whether a request has to be compared with bans."""
        self._counts = counts
        self._blocking = tuple(rule for rule in policy.rules if rule.blocks_all and policy.mode == "enforce")
        """The rules whose blocks hold under every rule."""
        self.elsewhere = bool(self._blocking) and len(every) > 1
        """Whether bans of another store than its own may concern a rule."""

    def counting(self, group: LimitGroup) -> Counting:
        """Return where a fast path of these limits counts, and which bans it has to look at."""
        names = {rule.name for rule in group.owners} | {blocks_of(rule) for rule in self._blocking}
        return self._counts.counting(group, self._of_store[group.store], tuple(names))

    def refusal(self, view: RequestView, rounds: list[Round], policy: CompiledPolicy) -> Steps[Outcome | None]:
        """Return the refusal of a request, if one of its keys is banned, or blocked under every rule."""
        for asked, looks in rounds:
            for question in asked:
                rule, key, _, _ = question
                left_us = yield from self._of_store[rule.store].left(rule.name, key)
                if left_us:
                    return self._refused(policy._grouped(view, [question], looks), question, left_us)
        for rule in self._blocking:
            bans, name = self._of_store[rule.store], blocks_of(rule)
            keys = policy.keys(rule, view, {}) if (yield from bans.has(name)) else ()
            for key in () if isinstance(keys, Outcome) else keys:
                left_us = yield from bans.left(name, key)
                if left_us:
                    question = rule, key, 1, rule.limits_for(view)
                    return self._refused(policy._grouped(view, [question], False), question, left_us)
        return None

    def _refused(self, groups: tuple[LimitGroup, ...], question: Question, left_us: int) -> Outcome:
        rule, key, cost, _ = question
        if not groups:  # a plan without limits
            self._counts.add(rule.name, REFUSED)
            return Outcome("deny", TOO_MANY, rule)
        decision = until_end_of_ban(groups[0].limits, key, cost, left_us, [])
        self._counts.refused(groups[0], decision)
        return refused(groups[0], decision)

    def spread(self, group: LimitGroup, decision: Decision) -> Steps[None]:
        """After a refusal, let the block of a rule with `blocks: all` hold under every rule."""
        rule, limit = group.owner(decision), decision.binding
        if rule not in self._blocking or decision.retry_us <= 0 or group.looks or group.degraded or decision.degraded:
            return
        bans, name, key = self._of_store[rule.store], blocks_of(rule), decision._asked[1][group.limits.index(limit)]
        try:
            if not (yield from bans.left(name, key)):
                yield from bans.ban(name, key, min(decision.retry_us, LONGEST_BAN))
        except Exception as error:  # the rule itself refuses the key all the same
            log.warning("rule %s: its block holds under this rule only: %s", rule.name, error)

    def observed(self, view: RequestView, rule: Rule, key: str) -> Steps[bool]:
        """Whether a key is banned under a rule that lets every request pass; if so, that is noted and counted."""
        left_us = yield from self._of_store[rule.store].left(rule.name, key)
        if left_us:
            note_over_limit(view, rule, None, "the key is banned")
            self._counts.add(rule.name, OBSERVED)
        return bool(left_us)


def until_end_of_ban(limits: tuple[Limit, ...], key: str, cost: int, left_us: int, answers: list[int]) -> Decision:
    """Return the refusal of a banned key by the limits of a rule; it has the later instant of ban and limit.

    `answers` are those of the limits, and empty if they were not asked.
    """
    rows: list[int] = []
    for at, limit in enumerate(limits):
        retry, reset = answers[ANSWER_FIELDS * at + 2 : ANSWER_FIELDS * at + 4] if answers else (0, 0)
        never = retry == NEVER or not limit.amount
        rows += (0, 0, NEVER if never else max(left_us, retry), max(left_us, reset), 0, 0)
    return Decision(limits, key, (cost,) * len(limits), rows, charged=False)
