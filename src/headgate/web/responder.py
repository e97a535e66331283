"""A responder: one policy on its stores, and the HTTP form of its outcomes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from time import monotonic
from typing import Any, AnyStr, Final, Generic, NamedTuple

from headgate.caches import ClearedWhenFull
from headgate.clock import Clock, SystemClock, WallClock
from headgate.engine import Decision
from headgate.errors import BudgetExhausted, InvalidPolicy, RateLimited
from headgate.policy import Policy, RequestView
from headgate.policy.edges import (
    METHODS,
    CompiledPolicy,
    FastPath,
    LimitGroup,
    MatchedRules,
    Outcome,
    PolicyCounts,
    Results,
    RuleSet,
    cost_in_fast_path,
    in_threads,
    names_of,
    refused,
)
from headgate.steps import Steps
from headgate.stores import Store
from headgate.web.added_fields import ALLOWS_ORIGIN, Expose, adding, expose_for, unchanged
from headgate.web.app_bodies import Reason
from headgate.web.clients import ClientOf, deciding
from headgate.web.headers import Compile, FieldWriter, HeaderCodec, headers_for
from headgate.web.refusal import (
    BAD_REQUEST,
    CAPACITY,
    FORBIDDEN,
    QUOTA,
    UNAUTHORIZED,
    CompileRefusal,
    Refusal,
    Refuse,
)

Pairs = list[tuple[AnyStr, AnyStr]]
REASONS: Final = {400: BAD_REQUEST, 401: UNAUTHORIZED, 403: FORBIDDEN, 429: QUOTA, 503: CAPACITY}
MOST_FAST_PATHS: Final = 4096
MOST_WRITERS: Final = 4096
CROWD: Final = 20
"""The number of keys refused within one second above which `Retry-After` is staggered."""


RawResponse = tuple[int, Pairs[AnyStr], bytes]
"""Status, header fields and body of a refusal."""
Raised = RateLimited | BudgetExhausted
RAISED: Final = (RateLimited, BudgetExhausted)
"""The errors of limiters and budgets of an app's own, which an edge answers: 429, and 503."""
Shortcut = FastPath | bool
"""The quickest way to decide on requests: a fast path; True if no rule applies to them, False if each is read."""


class Responder(Generic[AnyStr]):
    """One policy, and the HTTP form of its outcomes. A request keeps its responder when the policy changes."""

    def __init__(
        self,
        policy: Policy,
        stores: Mapping[str, Store],
        codec: HeaderCodec[AnyStr],
        refusal: Refusal,
        awaited: bool,
        counts: PolicyCounts | None = None,
        clients: ClientOf | None = None,
    ) -> None:
        self.compiled = CompiledPolicy(policy, stores, awaited=awaited, counts=counts)
        self._clients = clients
        self.awaited = check_awaited(policy, awaited)
        """Whether functions of the app have to be awaited before some rules can be evaluated."""
        self._looks_at_paths = any(rule.match.patterns for rule in policy.rules)
        self.counts_messages = any(rule.match.messages for rule in policy.rules)
        self.codec: HeaderCodec[AnyStr] = codec
        self._compile: Compile[AnyStr] = headers_for(policy.headers, codec, _told_by(stores[""]))
        self._expose: Expose[AnyStr] = expose_for(policy.headers, codec)
        self._writers: dict[LimitGroup, FieldWriter[AnyStr]] = {}
        self._refusers: dict[tuple[LimitGroup, Reason], Refuse[AnyStr]] = {}
        self._overloads: ClearedWhenFull[str, Refuse[AnyStr]] = ClearedWhenFull(
            MOST_WRITERS, lambda why: self._refusals((), "", "full", CAPACITY._replace(overload=why))
        )
        """The refusals of a load shedder, by their reason."""
        self._shortcuts: dict[tuple[RuleSet, str], Shortcut] = {}
        """Shortcuts by the rules that match and a known method."""
        self._find = policy.find if _all_fast(policy) else policy.rules_for
        """Steps look for the rules again; `rules_for` keeps what was found for them."""
        self._refusals: CompileRefusal[AnyStr] = refusal.compile(self._compile, codec)
        self._allows_origin: AnyStr = codec.name("Access-Control-Allow-Origin").lower()
        self._second = 0
        self._refused: set[str] = set()

    def await_functions(self, view: RequestView) -> Steps[None]:
        """Await the functions of the rules that may apply to a request."""
        rules = self.compiled.policy.rules_for(view.method, view.path).set.rules
        functions = [function for rule in rules for function in rule.awaited]
        if functions:
            yield Results(view, functions)

    def shortcut_of(self, method: str, path: str) -> Shortcut:
        """Return how requests with this method and path are decided."""
        if self.compiled.looks_first:
            return False
        method = method.upper()
        matched = self._find(method, path)
        name = (matched.set, method if method in METHODS else "")  # a client may send any method
        shortcut = self._shortcuts.get(name)
        if shortcut is None:
            shortcut = self._shortcut(matched, method)
            if len(self._shortcuts) < MOST_FAST_PATHS:
                self._shortcuts[name] = shortcut
        return shortcut.at(matched.pairs) if isinstance(shortcut, FastPath) and shortcut.by_params else shortcut

    def shortcut_at(self, method: str, route: str) -> Shortcut:
        """Return how requests to an endpoint are decided, on all its paths."""
        return False if self._looks_at_paths else self._shortcut(self._find(method, "/"), method, route)

    def _shortcut(self, matched: MatchedRules, method: str, route: str | None = None) -> Shortcut:
        if route is None and not matched.pairs:
            return True
        fast_path = self.compiled.fast_path(matched, method, route)
        if fast_path is None:
            return False
        group = fast_path.group
        fast_path.responder, fast_path.write_fields = self, self._writer(group)
        fast_path.writes_fields = self._compile(group.limits, "", group.disclose).writes
        fast_path.decide_request = deciding(fast_path, self._clients)
        fast_path.with_fields = (
            adding(fast_path.write_fields, self._allows_origin, self._expose) if fast_path.writes_fields else unchanged
        )
        return fast_path

    def fields(self, group: LimitGroup | None, decision: Decision | None) -> Pairs[AnyStr]:
        """Return the header fields that show how much is left, as far as each rule discloses it."""
        if group is None or decision is None:
            return []
        write_fields = self._writers.get(group)
        return self._writer(group)(decision) if write_fields is None else write_fields(decision)

    def _writer(self, group: LimitGroup) -> FieldWriter[AnyStr]:
        if len(self._writers) >= MOST_WRITERS:
            self._writers.clear()
        write_fields = self._writers[group] = self._compile(group.limits, "", group.disclose).write_remaining
        return write_fields

    def with_fields(self, headers: Iterable[tuple[AnyStr, AnyStr]], fields: Pairs[AnyStr]) -> Pairs[AnyStr]:
        """Return a response's headers and ours; expose ours to scripts if the app allows other origins."""
        given: list[tuple[Any, Any]] = headers if headers.__class__ is list else list(headers)
        for name, _ in given:
            if len(name) == ALLOWS_ORIGIN and name.lower() == self._allows_origin:
                return self._expose(given + fields)
        return given + fields

    def refuse(self, outcome: Outcome, accept: str | bytes | None, request: object = None) -> RawResponse[AnyStr]:
        """Return status, headers and body of a refusal."""
        if outcome.kind == "shadow" and outcome.rule is not None:
            act = outcome.rule.act
            pairs = (("Content-Type", act.content_type), ("Content-Length", str(len(act.body))))
            return act.status, [(self.codec.name(name), self.codec.value(value)) for name, value in pairs], act.body
        if outcome.group is not None and outcome.decision is not None:
            return self.refuse_by(outcome.group, outcome.decision, accept, request)
        if outcome.overload:
            return self._overloads[outcome.overload](None, accept, outcome.retry_after, request)
        reason = REASONS.get(outcome.status, QUOTA)
        answer = self._refusals((), "", "full", reason._replace(detail=outcome.detail))(None, accept, None, request)
        if outcome.challenge:
            answer[1].append((self.codec.name("WWW-Authenticate"), self.codec.value(outcome.challenge)))
        return answer

    def refuse_by(
        self, group: LimitGroup, decision: Decision, accept: str | bytes | None, request: object = None
    ) -> RawResponse[AnyStr]:
        """Like `refuse`, for a refusal by limits."""
        reason = reason_of(group, decision) if group.speaks else QUOTA
        refuse = self._refusers.get((group, reason))
        if refuse is None:
            if len(self._refusers) >= MOST_WRITERS:
                self._refusers.clear()
            refuse = self._refusers[group, reason] = self._refusals(group.limits, "", group.disclose, reason)
        return refuse(decision, accept, self._retry_after(decision), request)

    def refuse_fast(
        self, fast: FastPath, decision: Decision, accept: str | bytes | None, request: object = None
    ) -> RawResponse[AnyStr]:
        """Like `refuse`, for a refusal by a fast path."""
        if fast.shadows:
            return self.refuse(refused(fast.group, decision), accept, request)
        return self.refuse_by(fast.group, decision, accept, request)

    def refuse_raised(self, error: Raised, accept: str | bytes | None, request: object = None) -> RawResponse[AnyStr]:
        """Like `refuse`, for an error of a limiter of the app's own; or of a budget: no client did anything wrong."""
        if isinstance(error, BudgetExhausted):
            return self._refusals((), "", "full", CAPACITY)(None, accept, max(1.0, error.retry_after), request)
        decision = error.decision
        limits, _ = decision._asked
        return self._refusals(limits, "", "full", QUOTA)(decision, accept, self._retry_after(decision), request)

    def _retry_after(self, decision: Decision) -> float | None:
        """Return a staggered wait if many keys are refused in this second; None for the decision's own."""
        now = int(monotonic())
        if now != self._second:
            self._second, self._refused = now, set()
        if len(self._refused) <= CROWD:
            self._refused.add(decision._asked[1][0])
        return decision.retry_after_spread() if len(self._refused) > CROWD else None


def reason_of(group: LimitGroup, decision: Decision) -> Reason:
    """Return the reason of a refusal by a rule with a status or a message of its own."""
    rule, limit = group.owner(decision), decision.binding
    return QUOTA._replace(status=rule.act.refusal_status, detail=rule.act.message_for(*names_of(rule, limit)))


class Denial(NamedTuple, Generic[AnyStr]):
    """A refusal for which the app may send a response of its own."""

    responder: Responder[AnyStr]
    fields: Pairs[AnyStr]

    def completed(self, headers: Iterable[tuple[AnyStr, AnyStr]]) -> Pairs[AnyStr]:
        """Return the headers of the app's response, with the refusal's fields that it lacks."""
        given = list(headers)
        there = {name.lower() for name, _ in given}
        return self.responder.with_fields(given, [pair for pair in self.fields if pair[0].lower() not in there])


def check_awaited(policy: Policy, awaited: bool) -> bool:
    """Return whether functions of a policy have to be awaited; raise `InvalidPolicy` if the edge cannot do so."""
    every = [(rule.name, function) for rule in policy.rules for function in rule.awaited]
    if every and not awaited:
        raise InvalidPolicy([f"rule {name}: {in_threads(function)}" for name, function in every])
    return bool(every)


def _all_fast(policy: Policy) -> bool:
    """Return whether a fast path can serve every rule of a policy."""
    for rule in policy.rules:
        if rule.match.conditions or rule.exempt is not None or cost_in_fast_path(rule, "") is None:
            return False
    return True


def _told_by(store: Store) -> Clock:
    """Return the clock for instants in header fields: the one given to the store, else the machine's wall clock."""
    if store.decides_by_clock and not isinstance(store.clock, SystemClock):
        return store.clock
    return WallClock()
