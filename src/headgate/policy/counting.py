"""Counts of a policy: the result of each rule for each request. They outlive the compiled policy, and so a reload."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from headgate.engine import Counting, Decision, Tally
from headgate.forks import after_fork
from headgate.wording import log_of

if TYPE_CHECKING:
    from headgate.policy.bans import Bans
    from headgate.policy.outcome import LimitGroup, Outcome
    from headgate.policy.rule import Rule

ALLOWED, REFUSED, SHADOWED, OBSERVED, DELAYED, EXEMPT, DEGRADED_ALLOWED, DEGRADED_REFUSED = range(8)
IN_FLIGHT, WAITING = 4, 5
"""The gauges of a policy: they are numbers of a tally of their own."""
ITSELF: Final = "(policy)"
"""The name under which decisions are counted that no rule makes: those of `allow`, `deny`, and of unclear requests.

No rule can have a name with parentheses.
"""
NO_SAMPLE: Final = 2**31
log = log_of("headgate.policy")


class RuleCounts(NamedTuple):
    """The decisions of one rule in one process, by their result. They only grow.

    A request counts once for each rule that admits it, and a refused request only for the rule that refuses it. The
    limits of an endpoint decide after the policy: a request that only they refuse was admitted by the policy's rules.
    """

    allowed: int
    """Admitted at once."""
    refused: int
    """Refused: by a limit, or because a part of the key was missing."""
    shadowed: int
    """Answered in place of the app, by a rule with `act: shadow`."""
    observed: int
    """Admitted over its limit, by a rule with `act: observe` or `act: mark`."""
    delayed: int
    """Admitted after a wait."""
    exempt: int
    """Not counted by a rule that matches: `exempt`, or `missing: skip`."""
    degraded_allowed: int
    """Admitted while the store was away."""
    degraded_refused: int
    """Refused while the store was away."""


NO_COUNTS: Final = RuleCounts(*[0] * 8)


def sum_of(parts: Iterable[Mapping[str, RuleCounts]]) -> dict[str, RuleCounts]:
    """Return the sum of counts by rule."""
    total: dict[str, RuleCounts] = {}
    for part in parts:
        for name, counts in part.items():
            total[name] = RuleCounts(*map(sum, zip(total.get(name, NO_COUNTS), counts, strict=True)))
    return total


class Observer(Protocol):
    """Sees which keys are refused, and some of the keys that ask."""

    def refused(self, rule: Rule, key: str, decision: Decision) -> None:
        """See a refusal."""

    def until_sample(self) -> int:
        """Return the number of decisions until the next sample, by chance."""

    def sampled(self, asked: Iterable[tuple[Rule, str]]) -> None:
        """See the keys of one decision."""


class PolicyCounts:
    """The counts of every rule that a process has had, by name."""

    def __init__(self, observer: Observer | None = None) -> None:
        self._tallies: dict[str, Tally] = {}
        self.gauges = Tally()
        """The requests in flight, and those that wait."""
        self._observer = observer
        self._left = self._until_sample()
        after_fork(self._forget)

    def tally(self, name: str) -> Tally:
        """Return the tally of a rule."""
        found = self._tallies.get(name)
        return self._tallies.setdefault(name, Tally()) if found is None else found

    def values(self) -> Mapping[str, RuleCounts]:
        """Return the counts of each rule that has decided, by its name."""
        each = {name: RuleCounts(*tally.values()) for name, tally in list(self._tallies.items())}
        return {name: counts for name, counts in each.items() if any(counts)}

    def add(self, name: str, result: int) -> None:
        """Count a result of a rule."""
        self.tally(name).add(result)

    def counting(self, group: LimitGroup, bans: Bans, names: tuple[str, ...]) -> Counting:
        """Return where a fast path of these limits counts, natively if possible; keys may be banned under `names`."""
        admitting = tuple({rule.name: self.tally(rule.name) for rule in group.owners}.values())
        refusing = tuple(
            (self.tally(rule.name), SHADOWED if rule.act.kind == "shadow" else REFUSED) for rule in group.owners
        )
        on_due = partial(bans.due, names)
        return Counting(
            admitting, refusing, partial(self.saw_refusal, group), self._sampler(group), on_due, bans.now_us
        )

    def admitted(self, asked: Iterable[tuple[Sequence[Rule], Sequence[str], int]]) -> None:
        """Count a request that rules have admitted, each with its key, and their result; once for each rule.

        Of rules that are asked together, a delay is the result of those that delay.
        """
        each: dict[str, tuple[Rule, str, int]] = {}
        for rules, keys, result in asked:
            for rule, key in zip(rules, keys, strict=True):
                each[rule.name] = rule, key, ALLOWED if result == DELAYED and rule.act.kind != "delay" else result
        for name, (_, _, result) in each.items():
            tally = self._tallies.get(name)
            if tally is None:
                tally = self._tallies.setdefault(name, Tally())
            tally.add(result)
        self._left -= 1
        if self._left <= 0:
            self._left = self._sampled((rule, key) for rule, key, _ in each.values())

    def refused(self, group: LimitGroup, decision: Decision) -> None:
        """Count a request that a limit has refused."""
        rule = group.owner(decision)
        result = SHADOWED if rule.act.kind == "shadow" else REFUSED
        self.tally(rule.name).add(DEGRADED_REFUSED if decision.degraded or group.degraded else result)
        self.saw_refusal(group, decision)
        self._left -= 1
        if self._left <= 0:
            self._left = self._sampled(zip(group.owners, decision._asked[1], strict=True))

    def closed(self, outcome: Outcome) -> None:
        """Count a request that a rule refuses because its store is away."""
        self.tally(ITSELF if outcome.rule is None else outcome.rule.name).add(DEGRADED_REFUSED)

    def saw_refusal(self, group: LimitGroup, decision: Decision) -> None:
        """Tell the observer of a refusal."""
        if self._observer is not None:
            at = group.limits.index(decision.binding)
            try:
                self._observer.refused(group.owners[at], decision._asked[1][at], decision)
            except Exception:  # a request was decided: no error of its observers may decide it again
                log.exception("a refusal could not be observed")

    def _sampler(self, group: LimitGroup) -> Callable[[str | tuple[str, ...]], int]:
        """Return a function that shows the observer a decision and returns when to call it again.

        Its first call shows nothing: a key that asked once must not be taken for one that asks all the time.
        """
        begun = False

        def sample(keys: str | tuple[str, ...]) -> int:
            nonlocal begun
            if not begun:
                begun = True
                return self._until_sample()
            each = (keys,) * len(group.owners) if isinstance(keys, str) else keys
            return self._sampled(zip(group.owners, each, strict=True))

        return sample

    def _until_sample(self) -> int:
        return NO_SAMPLE if self._observer is None else self._observer.until_sample()

    def _sampled(self, asked: Iterable[tuple[Rule, str]]) -> int:
        if self._observer is not None:
            try:
                self._observer.sampled({rule.name: (rule, key) for rule, key in asked}.values())
            except Exception:
                log.exception("a decision could not be observed")
        return self._until_sample()

    def _forget(self) -> None:
        """Count from zero in a forked child: the parent keeps its counts."""
        for tally in (*self._tallies.values(), self.gauges):
            tally.forget()
