"""A responder: one policy on its stores, and how its outcomes are said in HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from time import monotonic
from typing import Any, AnyStr, Final, Generic

from headgate.clock import Clock, SystemClock, WallClock
from headgate.engine import Decision
from headgate.policy import Policy
from headgate.policy.compiled import CompiledPolicy
from headgate.policy.fast_path import MOST_FAST_PATHS, FastPath, Keys
from headgate.policy.match import METHODS
from headgate.policy.outcome import LimitGroup, Outcome, refused
from headgate.policy.rule_index import MatchedRules as Fitting
from headgate.policy.rule_index import RuleSet
from headgate.stores import Store
from headgate.web.headers import Compile, FieldWriter, HeaderCodec, expose_for, headers_for
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
MOST_WRITERS: Final = 4096
ALLOWS_ORIGIN: Final = len("Access-Control-Allow-Origin")
CROWD: Final = 20
"""Keys refused in one second beyond which clients are told to come back one after the other."""


Found = tuple["Responder[AnyStr]", FastPath | None, Callable[[Decision], Pairs[AnyStr]]]
"""Under which policy a fast path is, the fast path (none where no rule applies), and how to say what is left."""


def decide(fast_path: FastPath, keys: Keys | None) -> Decision | None:
    """What a fast path says; None where the request has to be looked at after all, and nothing was charged."""
    try:
        return None if keys is None else fast_path.ask(keys, fast_path.costs)
    except Exception:  # the long way asks again, and answers by `on_error`
        return None


class Responder(Generic[AnyStr]):
    """One policy, and how its outcomes are said: a request is answered wholly by the one it came under."""

    def __init__(
        self, policy: Policy, stores: Mapping[str, Store], codec: HeaderCodec[AnyStr], refusal: Refusal, awaited: bool
    ) -> None:
        self.compiled = CompiledPolicy(policy, stores, awaited=awaited)
        self._looks_at_paths = any(rule.match.patterns for rule in policy.rules)
        self.counts_messages = any(rule.match.messages for rule in policy.rules)
        self.codec: HeaderCodec[AnyStr] = codec
        self._compile: Compile[AnyStr] = headers_for(policy.headers, codec, _told_by(stores[""]))
        self._expose: Callable[[Iterable[tuple[AnyStr, AnyStr]]], Pairs[AnyStr]] = expose_for(policy.headers, codec)
        self._writers: dict[LimitGroup, FieldWriter[AnyStr]] = {}
        self._refusers: dict[LimitGroup, Refuse[AnyStr]] = {}
        self._ways: dict[tuple[RuleSet, str], Found[AnyStr] | None] = {}
        """Lanes by the rules that fit and a method that is known; None where each request has to be looked at."""
        self._refusals: CompileRefusal[AnyStr] = refusal.compile(self._compile, codec)
        self._allows_origin: AnyStr = codec.name("Access-Control-Allow-Origin").lower()
        self._second = 0
        self._refused: set[str] = set()

    def fast_path_for(self, method: str, path: str) -> Found[AnyStr] | None:
        """The fast path of such requests; None where each has to be looked at."""
        if self.compiled.looks_first:
            return None
        method = method.upper()
        fitting = self.compiled.policy.find(method, path)
        name = (fitting.set, method if method in METHODS else "")  # methods are the client's
        try:
            way = self._ways[name]
        except KeyError:
            way = self._way(fitting, method)
            if len(self._ways) < MOST_FAST_PATHS:
                self._ways[name] = way
        if way is not None and way[1] is not None and way[1].by_params:
            return self, way[1].at(fitting.pairs), way[2]
        return way

    def fast_path_at(self, method: str, route: str) -> Found[AnyStr] | None:
        """The fast path of an endpoint, for all its paths; None where each request has to be looked at."""
        return None if self._looks_at_paths else self._way(self.compiled.policy.rules_for(method, "/"), method, route)

    def _way(self, fitting: Fitting, method: str, route: str | None = None) -> Found[AnyStr] | None:
        if route is None and not fitting.pairs:
            return self, None, lambda decision: []
        fast_path = self.compiled.fast_path(fitting, method, route)
        return None if fast_path is None else (self, fast_path, self._writer(fast_path.group))

    def fields(self, group: LimitGroup | None, decision: Decision | None) -> Pairs[AnyStr]:
        """The header fields that say how much is left, as far as each rule discloses it."""
        if group is None or decision is None:
            return []
        write_fields = self._writers.get(group)
        return self._writer(group)(decision) if write_fields is None else write_fields(decision)

    def _writer(self, group: LimitGroup) -> FieldWriter[AnyStr]:
        if len(self._writers) >= MOST_WRITERS:
            self._writers.clear()
        write_fields = self._writers[group] = self._compile(group.limits, "", group.disclose).of_yes
        return write_fields

    def with_fields(self, headers: Iterable[tuple[AnyStr, AnyStr]], fields: Pairs[AnyStr]) -> Pairs[AnyStr]:
        """A response's headers and ours; named for scripts where the app lets browsers of other origins in."""
        every: list[tuple[Any, Any]] = [*headers, *fields]
        for name, _ in every:
            if len(name) == ALLOWS_ORIGIN and name.lower() == self._allows_origin:
                return self._expose(every)
        return every

    def refuse(self, outcome: Outcome, accept: str | bytes | None) -> tuple[int, Pairs[AnyStr], bytes]:
        """Status, headers and body of a no."""
        if outcome.kind == "shadow" and outcome.rule is not None:
            act = outcome.rule.act
            pairs = (("Content-Type", act.content_type), ("Content-Length", str(len(act.body))))
            return act.status, [(self.codec.name(name), self.codec.value(value)) for name, value in pairs], act.body
        if outcome.group is not None and outcome.decision is not None:
            return self._refuse(outcome.group, outcome.decision, accept)
        reason = REASONS.get(outcome.status, QUOTA)
        answer = self._refusals((), "", "full", reason._replace(detail=outcome.detail))(None, accept, None)
        if outcome.challenge:
            answer[1].append((self.codec.name("WWW-Authenticate"), self.codec.value(outcome.challenge)))
        return answer

    def refuse_in_fast_path(
        self, fast_path: FastPath, decision: Decision, accept: str | bytes | None
    ) -> tuple[int, Pairs[AnyStr], bytes]:
        """As `refuse`, for a no from a fast_path."""
        if fast_path.shadows:
            return self.refuse(refused(fast_path.group, decision), accept)
        return self._refuse(fast_path.group, decision, accept)

    def refuse_for(self, decision: Decision, accept: str | bytes | None) -> tuple[int, Pairs[AnyStr], bytes]:
        """As `refuse`, for the no of a limiter of the app's own."""
        limits = tuple(call.limit for call in decision.calls)
        return self._refusals(limits, "", "full", QUOTA)(decision, accept, self._retry_after(decision))

    def _refuse(
        self, group: LimitGroup, decision: Decision, accept: str | bytes | None
    ) -> tuple[int, Pairs[AnyStr], bytes]:
        refuse = self._refusers.get(group)
        if refuse is None:
            if len(self._refusers) >= MOST_WRITERS:
                self._refusers.clear()
            refuse = self._refusers[group] = self._refusals(group.limits, "", group.disclose, QUOTA)
        return refuse(decision, accept, self._retry_after(decision))

    def _retry_after(self, decision: Decision) -> float | None:
        """When to come back: exactly, or staggered where many are told to at one time."""
        now = int(monotonic())
        if now != self._second:
            self._second, self._refused = now, set()
        if len(self._refused) <= CROWD:
            self._refused.add(decision.calls[0].key)
        return decision.retry_after_spread() if len(self._refused) > CROWD else None


def _told_by(store: Store) -> Clock:
    """The clock of instants in header fields: the one the store was given, else the machine's as it is set now."""
    if store.decides_by_clock and not isinstance(store.clock, SystemClock):
        return store.clock
    return WallClock()
