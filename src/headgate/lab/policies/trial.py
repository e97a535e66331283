"""One policy in virtual time: what it would have done to each request of a log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from headgate.caches import ClearedWhenFull
from headgate.clock import HandClock
from headgate.lab.logs import Row
from headgate.policy import Policy, RequestView
from headgate.policy.edges import CompiledPolicy, FastPath, MatchedRules, Rule, RuleSet, settle
from headgate.steps import run
from headgate.stores import MemoryStore

MOST_PATHS: Final = 65_536
MOST_BYTES: Final = 2**30
NO_HEADERS: Final[Mapping[str, list[str]]] = {}

PathMatch = tuple[MatchedRules, FastPath | None]


class RuleCounts:
    """The work of one rule."""

    __slots__ = ("clients", "delayed", "longest_delay", "matched", "observed", "refused", "shadowed")

    def __init__(self) -> None:
        self.matched = self.refused = self.shadowed = self.observed = self.delayed = self.longest_delay = 0
        self.clients: set[str] = set()
        """Clients that it refused, or would have refused."""


class PolicyTrial:
    """A policy on memory stores whose clock is set to the time of each request."""

    def __init__(self, policy: Policy, by_user: bool) -> None:
        self._clock = HandClock()
        self._store = MemoryStore(max_bytes=MOST_BYTES, clock=self._clock)
        self._policy = policy
        self._compiled = CompiledPolicy(policy, {"": self._store}, awaited=False)
        self._compiled.bind()
        self._by_user = by_user
        self._matches: ClearedWhenFull[tuple[str, str], PathMatch] = ClearedWhenFull(MOST_PATHS, self._match)
        self._matched: Counter[RuleSet] = Counter()
        """Requests on fast paths, by the rules that apply to them."""
        self.denied = 0
        """Requests that no rule refuses, but `deny`; or that frameworks may read differently."""
        self.rules = {rule.name: RuleCounts() for rule in policy.rules}

    def passes(self, request: Row) -> bool:
        """Decide about a request at its time; whether the app would have been called."""
        time, key, _, method, path, status = request
        self._clock.us = time
        matched, fast_path = self._matches[method, path.partition("?")[0]]
        if fast_path is not None:
            self._matched[matched.set] += 1
            decision = fast_path.decide(key) if fast_path.by_address and not self._by_user else None
            if decision is None:
                decision = fast_path.decide_by(self._view(request))
            if decision is not None:
                return decision.allowed or self._refuse(fast_path.group.owner(decision), key)
        elif not matched.pairs and not self._compiled.looks_first:
            return True
        view = self._view(request)
        if fast_path is None:
            for rule, _ in self._policy.matching(view):
                self.rules[rule.name].matched += 1
        outcome = run(self._compiled.before(view))
        for name in (*(view.would_refuse or ()), *(rule.name for rule, _ in view.marked)):
            self.rules[name].observed += 1
            self.rules[name].clients.add(key)
        if outcome.kind != "pass":
            return self._refuse(outcome.rule, key)
        if outcome.delay_us and outcome.rule is not None:
            counts = self.rules[outcome.rule.name]
            counts.delayed += 1
            counts.longest_delay = max(counts.longest_delay, outcome.delay_us)
        for charge in outcome.charges:
            if charge.group.follows:
                run(settle(charge, None, status, _no_header))
        return True

    def finish(self) -> None:
        """Add up the requests that each rule applied to."""
        for matched, requests in self._matched.items():
            for rule in matched.rules:
                self.rules[rule.name].matched += requests
        self._matched.clear()

    @property
    def forgotten(self) -> int:
        """Keys whose states did not fit in memory: above 0, the counts are not exact."""
        return self._store.evictions()

    def _match(self, asked: tuple[str, str]) -> PathMatch:
        method, path = asked
        matched = self._policy.find(method, path)
        fast_path = self._compiled.fast_path(matched, method) if matched.pairs else None
        return matched, fast_path.at(matched.pairs) if fast_path is not None and fast_path.by_params else fast_path

    def _view(self, request: Row) -> RequestView:
        path, _, query = request[4].partition("?")
        view = RequestView(request[3], path, NO_HEADERS, None if self._by_user else request[1])
        view.query_string = query
        view.would_refuse = []
        if self._by_user:
            view.user = request[1]
        return view

    def _refuse(self, rule: Rule | None, key: str) -> bool:
        if rule is None:
            self.denied += 1
            return False
        counts = self.rules[rule.name]
        if rule.act.kind == "shadow":
            counts.shadowed += 1
        else:
            counts.refused += 1
        counts.clients.add(key)
        return False


def _no_header(name: str) -> None:
    return None
