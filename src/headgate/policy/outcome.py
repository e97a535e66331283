"""Outcomes: the decision about a request, the limits it was taken over, and the charges that may still change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, NamedTuple

from headgate.algorithms import Verdict, bucket
from headgate.caches import ClearedWhenFull
from headgate.engine import Decision
from headgate.errors import HeadgateError
from headgate.limit import Limit
from headgate.policy.fleet import FleetRule
from headgate.policy.key import Params, is_missing
from headgate.policy.rule import Rule
from headgate.policy.values import CREDENTIALS, Unclear
from headgate.policy.view import RequestView

Kind = Literal["pass", "deny", "shadow"]
BAD_REQUEST: Final = 400
UNAUTHORIZED: Final = 401
FORBIDDEN: Final = 403
TOO_MANY: Final = 429
UNAVAILABLE: Final = 503
MOST_COSTS: Final = 1024
"""The most combinations of costs whose limits are cached, for rules with `at_most`."""
SENT: Final = {"header": "header", "cookie": "cookie", "query": "query parameter", "claim": "claim"}
"""Parts of a key that a client sends, and their names in messages."""


class Bounds:
    """Limits of one decision; some refuse a request that they would hold for longer than `at_most` microseconds.

    `at_most` has a value for each limit; 0 for no bound. The store itself refuses such a request, in the step that
    charges all limits or none. So each limit with a bound is asked as a bucket of another depth, which a call of this
    cost fills at that time.
    """

    __slots__ = ("_askers", "_at_most", "_gate", "_limits")

    def __init__(self, gate: Any, limits: tuple[Limit, ...], at_most: tuple[int, ...]) -> None:  # noqa: ANN401
        self._gate = gate
        self._limits = limits
        self._at_most = at_most
        self._askers: ClearedWhenFull[tuple[int, ...], Callable[..., Any]] = ClearedWhenFull(MOST_COSTS, self._bounded)

    def ask(self, keys: tuple[str, ...], costs: tuple[int, ...]) -> Any:  # noqa: ANN401
        """Return a decision, or an awaitable of one."""
        return self._askers[costs](keys, costs)

    def _bounded(self, costs: tuple[int, ...]) -> Callable[..., Any]:
        each = zip(self._limits, self._at_most, costs, strict=True)
        bounded = tuple(limit._starting_within(most, cost) if most else limit for limit, most, cost in each)
        ask: Callable[..., Any] = self._gate.asker(bounded)
        return ask

    def as_written(self, decision: Decision) -> Decision:
        """Return the same decision over the limits of the rules, as headers and refunds need them."""
        _, keys = decision._asked
        return Decision(self._limits, keys, decision.costs, decision._answers, degraded=decision.degraded)


class LimitGroup:
    """Limits of one store that one decision is taken over, and the rule of each; with `looks`, none is charged."""

    __slots__ = (
        "ask", "bounds", "counted", "counts_refused", "degraded", "delays", "disclose", "follows", "gate", "hidden",
        "holds_permits", "limits", "local", "looks", "owners", "speaks", "store",
    )  # fmt: skip

    def __init__(self, store: str, gate: Any, pairs: Sequence[tuple[Rule, Limit]], looks: bool = False) -> None:  # noqa: ANN401
        self.store = store
        self.gate = gate
        self.looks = looks
        self.ask: Callable[..., Any]
        self.owners: tuple[Rule, ...]
        self.limits: tuple[Limit, ...]
        self.owners, self.limits = zip(*pairs, strict=True)
        self.local: LimitGroup | None = None
        """The limits of rules with `on_error: local`, for an outage of the store; made at the first one."""
        self.degraded = False
        """Whether these are such limits."""
        self.counted: Callable[..., Decision] | None = None
        """The `ask` of fast paths, which counts each decision; made for the first of them."""
        self.counts_refused = self.delays = self.follows = self.holds_permits = self.speaks = False
        at_most, disclose = [], []
        for rule, limit in pairs:  # one loop: a group is made while a request waits
            disclose.append(rule.disclose)
            self.speaks = self.speaks or bool(rule.act.messages) or rule.act.refusal_status != TOO_MANY
            if looks:
                continue
            lends = limit.step.LENDS
            at_most.append(rule.act.at_most_us if lends else 0)
            if rule.count.refused:
                self.counts_refused = True
            if lends and rule.act.kind == "delay":  # a limit that was carried over a reload may have no queue
                self.delays = True
            if rule.follows_response:
                self.follows = True
            if limit.in_flight:
                self.holds_permits = True
        self.disclose = tuple(disclose)
        self.hidden = set(disclose) == {"none"}
        """Whether nothing of these limits is shown."""
        self.bounds = Bounds(gate, self.limits, tuple(at_most)) if any(at_most) else None
        """The bounds of rules with `at_most`; None without such a rule."""
        try:
            self.ask = gate.asker(self.limits, looks) if self.bounds is None else self.bounds.ask
        except HeadgateError:  # the store has no room now: the request is answered as in an outage
            self.ask = self._ask_anew

    def _ask_anew(self, keys: tuple[str, ...], costs: tuple[int, ...]) -> Any:  # noqa: ANN401
        self.ask = self.gate.asker(self.limits, self.looks)
        return self.ask(keys, costs)

    def delay(self, decision: Decision) -> int:
        """Return for how many microseconds the rules that delay hold the request."""
        each = zip(self.owners, self.limits, decision.verdicts, decision.costs, strict=True)
        return max(
            held_for(limit, verdict, cost, rule.act.at_most_us)
            for rule, limit, verdict, cost in each
            if rule.act.kind == "delay" and limit.step.LENDS
        )

    def owner(self, decision: Decision) -> Rule:
        """Return the rule of the binding limit."""
        return self.owners[0] if len(self.owners) == 1 else self.owners[self.limits.index(decision.binding)]


class Charge(NamedTuple):
    """A charge for a request, which its response may still correct."""

    group: LimitGroup
    decision: Decision


class Outcome(NamedTuple):
    """The decision of a policy about a request."""

    kind: Kind
    status: int = 200
    rule: Rule | None = None
    """The rule that refused; of an admitted request, the rule with the tightest limit."""
    decision: Decision | None = None
    group: LimitGroup | None = None
    """The group that the decision was taken over."""
    delay_us: int = 0
    """The time to hold the request before the app is called."""
    charges: tuple[Charge, ...] = ()
    """The charges that the response may still change."""
    detail: str = ""
    """The message to the client for a refusal that is not due to a limit."""
    challenge: str = ""
    """The scheme by which the client can authenticate, for `WWW-Authenticate`."""
    overload: str = ""
    """Why a load shedder refuses the request: `fleet`, or a reason that the shedder itself gives."""
    retry_after: int = 0
    """Seconds after which the client of such a request may come back."""
    marked: Sequence[tuple[Rule, Decision | None]] = ()
    """The rules with `act: mark` over whose limits the request is, and their decisions: None without a key."""


PASS: Final = Outcome("pass")


def refused(group: LimitGroup, decision: Decision) -> Outcome:
    """Return the outcome of a refusal: `shadow`, 429, or 503 if the whole fleet is busy."""
    rule = group.owner(decision)
    if isinstance(rule, FleetRule):
        return Outcome("deny", UNAVAILABLE, rule, overload="fleet")
    if rule.act.kind == "shadow":
        return Outcome("shadow", rule.act.status, rule, decision, group)
    return Outcome("deny", rule.act.refusal_status, rule, decision, group)


def refused_unclear(reason: Unclear) -> Outcome:
    """Return the refusal of a request that frameworks may read differently."""
    return Outcome("deny", BAD_REQUEST, detail=str(reason))


def refused_without(rule: Rule, view: RequestView, params: Params) -> Outcome:
    """Return the refusal of a request without a part of the key; it names a part that the client can send."""
    for name, part in zip(rule.parts, rule.key, strict=True):
        kind, _, field = name.partition(" ")
        if kind in SENT and is_missing(part, view, params):
            bearer = kind == "claim" or field.lower() in CREDENTIALS
            detail = f"The {SENT[kind]} {field} is missing."
            return Outcome("deny", UNAUTHORIZED, rule, detail=detail, challenge="Bearer" if bearer else "APIKey")
    return Outcome("deny", FORBIDDEN, rule)


def held_for(limit: Limit, verdict: Verdict, cost: int, at_most_us: int) -> int:
    """Return for how many microseconds a limit holds a request that it has admitted.

    A request of cost 0 is never refused, so its wait is cut to `at_most_us` instead.
    """
    delay_us = bucket.departs(bucket.Params(*limit.params), verdict, cost)
    return min(delay_us, at_most_us or delay_us)
