"""What every edge shares: stores, the policy of now, who the client is, and how a ruling is said in HTTP.

An edge turns its framework's request into a `RequestView`, and a ruling into its framework's response. Everything else
is here, once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import Any, AnyStr, Final, Generic

from headgate.clock import SystemClock
from headgate.engine import Decision
from headgate.errors import HeadgateError
from headgate.policy import Policy, Proxies, RequestView
from headgate.policy.judge import Group, Judge, Ruling
from headgate.policy.reload import PolicyFile
from headgate.stores import Store, open_store
from headgate.waiting import Alarms
from headgate.web.headers import Compile, Wire, Write, expose_for, headers_for
from headgate.web.hints import Hints, warn_of_workers
from headgate.web.refusal import CAPACITY, FORBIDDEN, QUOTA, CompileRefusal, Refusal

PolicyGiven = Policy | str | Path | Mapping[str, Any]
Pairs = list[tuple[AnyStr, AnyStr]]
REASONS: Final = {403: FORBIDDEN, 429: QUOTA, 503: CAPACITY}
log = logging.getLogger("headgate.web")
MOST_WRITERS: Final = 4096
CROWD: Final = 20
"""Refusals in one second from which on those who are refused are told to come back one after the other."""


class Court(Generic[AnyStr]):
    """One policy, and how its rulings are said: a request is answered wholly by the one it came under."""

    def __init__(
        self, policy: Policy, stores: Mapping[str, Store], wire: Wire[AnyStr], refusal: Refusal, awaited: bool
    ) -> None:
        self.judge = Judge(policy, stores, awaited=awaited)
        self.counts_messages = any(rule.match.messages for rule in policy.rules)
        self._wire: Wire[AnyStr] = wire
        self._clock = SystemClock()
        self._compile: Compile[AnyStr] = headers_for(policy.headers, wire, self._clock)
        self._expose: Callable[[Iterable[tuple[AnyStr, AnyStr]]], Pairs[AnyStr]] = expose_for(policy.headers, wire)
        self._writers: dict[Group, Write[AnyStr]] = {}
        self._refusals: CompileRefusal[AnyStr] = refusal.compile(self._compile, wire)
        self._allows_origin: AnyStr = wire.name("Access-Control-Allow-Origin").lower()
        self._second = self._refused = 0

    def fields(self, ruling: Ruling) -> Pairs[AnyStr]:
        """The header fields that say how much is left, as far as each rule discloses it."""
        group = ruling.group
        if group is None:
            return []
        write = self._writers.get(group)
        if write is None:
            if len(self._writers) >= MOST_WRITERS:
                self._writers.clear()
            write = self._writers[group] = self._compile(group.limits, "", group.disclose)
        return write(ruling.decision)

    def with_fields(self, headers: Iterable[tuple[AnyStr, AnyStr]], fields: Pairs[AnyStr]) -> Pairs[AnyStr]:
        """A response's headers and ours; named for scripts where the app lets browsers of other origins in."""
        every: list[tuple[Any, Any]] = [*headers, *fields]
        for name, _ in every:
            if name.lower() == self._allows_origin:
                return self._expose(every)
        return every

    def refuse(self, ruling: Ruling, accept: str | bytes | None) -> tuple[int, Pairs[AnyStr], bytes]:
        """Status, headers and body of a no."""
        if ruling.kind == "shadow" and ruling.rule is not None:
            act = ruling.rule.act
            pairs = (("Content-Type", act.content_type), ("Content-Length", str(len(act.body))))
            return act.status, [(self._wire.name(name), self._wire.value(value)) for name, value in pairs], act.body
        limits, disclose = (ruling.group.limits, ruling.group.disclose) if ruling.group else ((), ())
        refuse = self._refusals(limits, "", disclose or "full", REASONS.get(ruling.status, QUOTA))
        return refuse(ruling.decision, accept, self._retry_after(ruling.decision))

    def _retry_after(self, decision: Decision | None) -> float | None:
        """When to come back: exactly, or staggered where many are told to at one time."""
        if decision is None:
            return None
        now = int(monotonic())
        if now != self._second:
            self._second, self._refused = now, 0
        self._refused += 1
        return decision.retry_after_spread() if self._refused > CROWD else None


class Door(Generic[AnyStr]):
    """A policy in front of an app."""

    def __init__(
        self,
        policy: PolicyGiven,
        wire: Wire[AnyStr],
        *,
        awaited: bool,
        store: Store | str | None = None,
        trusted_proxies: Sequence[str] = (),
        proxy_hops: int = 0,
        forwarded_header: str = "x-forwarded-for",
        plan: Callable[[RequestView], str | None] | None = None,
        refusal: Refusal | None = None,
    ) -> None:
        self._file = PolicyFile(policy)
        self._wire: Wire[AnyStr] = wire
        self._awaited = awaited
        self._store = open_store(store, None)
        self._opened: dict[str, Store] = {}
        """By URL."""
        self._owned = [self._store] if self._store is not store else []
        proxies = Proxies(trusted_proxies, hops=proxy_hops, header=forwarded_header)
        self.proxies = proxies if trusted_proxies or proxy_hops else None
        self.plan = plan
        self.clock = SystemClock()
        self.alarms = Alarms(self.clock)
        self._refusal = refusal or Refusal()
        self._hints: Hints | None = Hints(self.proxies is not None)
        self._court: Court[AnyStr] = self._open(self._file.policy)
        warn_of_workers([self._store, *self._opened.values()])

    def _open(self, policy: Policy) -> Court[AnyStr]:
        stores = {"": self._store}
        for name, url in policy.stores.items():
            if url not in self._opened:
                self._opened[url] = open_store(url, None)
            stores[name] = self._opened[url]
        return Court(policy, stores, self._wire, self._refusal, self._awaited)

    def court(self, view: RequestView) -> Court[AnyStr]:
        """Where this request is ruled on."""
        if self._file.changed():
            self._exchange()
        if self.plan is not None and view.plan is None:
            view.plan = self.plan(view)
        if self._hints is not None and not self._hints.look(view):
            self._hints = None
        return self._court

    def reload(self) -> bool:
        """Read the policy's file again now; whether there was a good one. For a signal handler."""
        return self._file.reload() and self._exchange()

    def _exchange(self) -> bool:
        """Rule by the new policy from now on, if it can be used."""
        try:
            self._court = self._open(self._file.policy)
        except HeadgateError as reason:
            log.error("the policy stays as it was; %s cannot be used: %s", self._file.name, reason)
            return False
        return True

    @property
    def counts_messages(self) -> bool:
        """Whether a rule counts the messages of a websocket."""
        return self._court.counts_messages

    def close(self) -> None:
        """Let go of the stores that were opened here."""
        for store in (*self._owned, *self._opened.values()):
            if hasattr(store, "close"):
                store.close()

    async def aclose(self) -> None:
        """As `close`, in an event loop."""
        for store in (*self._owned, *self._opened.values()):
            if hasattr(store, "aclose"):
                await store.aclose()
            elif hasattr(store, "close"):
                store.close()
