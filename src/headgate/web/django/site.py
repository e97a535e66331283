"""The limits of this process, opened from `settings.HEADGATE`; and the routes of the site, for the paths of rules."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property, partial
from threading import RLock
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.urls import URLResolver, get_resolver
from django.urls.resolvers import LocalePrefixPattern, RoutePattern

from headgate.forks import after_fork
from headgate.observe import Snapshot, summed
from headgate.policy import Policy
from headgate.policy.edges import CountedRule, RuleCounts, RuleKeys, check_no_loop, sum_of
from headgate.shed import LoadShedder
from headgate.stores import Store, open_store
from headgate.web.django.endpoints import endpoints_in
from headgate.web.django.request import lines_of, read_request
from headgate.web.django.settings import Setup
from headgate.web.django.site_limits import SiteLimits, preparing
from headgate.web.edge import NOW
from headgate.web.edge_snapshot import snapshot_of
from headgate.web.headers import WSGI
from headgate.web.rules_by_name import counted_rule
from headgate.web.runtime import Reader, Runtime
from headgate.web.unmatched_rules import Route, read_route
from headgate.wording import Renamed


class _Opened:
    """Settings with their stores and runtimes: one runtime for threads, one for event loops, made when needed."""

    def __init__(self, bound: Store | None = None) -> None:
        self._bound = bound
        self._limits: dict[bool, type[SiteLimits]] = {}
        self._lock = RLock()
        after_fork(self.renew_lock)

    @cached_property
    def setup(self) -> Setup:
        return Setup(getattr(settings, "HEADGATE", {}))

    @cached_property
    def _own(self) -> Store:
        return open_store(self.setup.store, None)

    @property
    def store(self) -> Store:
        return self._own if self._bound is None else self._bound

    @property
    def runtimes(self) -> list[Runtime[str]]:
        """The runtimes that were made so far."""
        return [each.runtime for each in self._limits.values()]

    def _use(self, store: Store) -> None:
        with self._lock:
            self._bound = None if store is self.__dict__.get("_own") else store
            for runtime in self.runtimes:
                runtime._use(store)

    def renew_lock(self) -> None:
        """Replace the lock after a fork, which may have copied it while another thread held it."""
        self._lock = RLock()

    def inherit(self) -> _Opened:
        """Return other settings on the store that a test has chosen, if any."""
        return _Opened(self._bound)

    def limits(self, awaited: bool) -> type[SiteLimits]:
        """Return the class of each request's limits, for an event loop or for threads."""
        limits = self._limits.get(awaited)
        if limits is None:
            with self._lock:
                limits = self._limits.get(awaited) or self._open(awaited)
        return limits

    def _open(self, awaited: bool) -> type[SiteLimits]:
        setup = self.setup
        if setup.mistakes:
            raise ImproperlyConfigured("\n".join(each.message for each in setup.mistakes))
        reader = Reader(WSGI, partial(read_request, setup.user_of), lines_of)
        runtime = Runtime(setup.policy, reader, replace(setup.options, store=self.store), awaited=awaited)
        runtime.routes = routes_in
        runtime.endpoints = partial(endpoints_in, setup)
        runtime.prepare = preparing(setup, awaited)
        limits = self._limits[awaited] = type("SiteLimits", (SiteLimits,), {"runtime": runtime, "setup": setup})
        return limits

    def close(self) -> None:
        """Close what was opened here; a store that the settings gave stays open."""
        for runtime in self.runtimes:
            runtime.close()
        if "_own" in self.__dict__ and self._own is not self.setup.store and hasattr(self._own, "close"):
            self._own.close()


class RateLimits(RuleKeys):
    """The limits of this process. `headgate.testing` freezes, resets and disables them."""

    if not TYPE_CHECKING:
        door = Renamed(NOW)
        runtime = Renamed(NOW)

    def __init__(self) -> None:
        self.opened = _Opened()
        self._before: list[_Opened] = []
        """Earlier settings, which are restored after a test."""

    @property
    def setup(self) -> Setup:
        """The settings."""
        return self.opened.setup

    @property
    def policy(self) -> Policy:
        """The current policy; raises `ImproperlyConfigured` if the settings are wrong."""
        return self._runtime_now.policy

    @property
    def shedder(self) -> LoadShedder | None:
        """The load shedder of the policy's `shed`, for its `stats()` and its `mode`; None if there is none."""
        return self._runtime_now.shedder

    @property
    def _runtime_now(self) -> Runtime[str]:
        runtimes = self.opened.runtimes or [self.opened.limits(False).runtime]
        return runtimes[0]

    @property
    def store(self) -> Store:
        """The store that counts, unless a rule names another."""
        return self.opened.store

    @property
    def namespace(self) -> str:
        """The namespace of every count made here."""
        return self.policy.namespace

    def counts(self) -> Mapping[str, RuleCounts]:
        """Return the decisions of each rule in this process, by their result; they only grow, also over a reload."""
        return sum_of([runtime.counts.values() for runtime in self.opened.runtimes])

    def snapshot(self, keys: bool = True) -> Snapshot:
        """Return everything that was counted in this process: rules, stores, and the keys refused most and busiest."""
        return summed([snapshot_of(runtime, keys) for runtime in self.opened.runtimes], keys)

    def _counted(self, rule: str) -> CountedRule:
        return counted_rule(self._runtime_now, rule)

    def _check_thread(self, verb: str) -> None:
        if self._runtime_now.awaited:
            check_no_loop(verb)

    def _use(self, store: Store) -> None:
        """Count in this store from now on, as `headgate.testing.frozen` and `disabled` do for a while."""
        self.opened._use(store)

    def reload(self) -> bool:
        """Read the policy's file again; False if the policy stays as it was. For a signal handler."""
        reloaded = [runtime.reload() for runtime in self.opened.runtimes]  # a list: `any` alone would stop at the first
        return any(reloaded)

    def close(self) -> None:
        """Close the stores that were opened here."""
        self.opened.close()

    def follow_settings(self, setting: str, enter: bool, **_: Any) -> None:  # noqa: ANN401
        """Start new counts for changed settings; restore the earlier ones when a test is over."""
        if setting != "HEADGATE":
            return
        if enter:
            self._before.append(self.opened)
            self.opened = self.opened.inherit()
        else:
            self.opened.close()
            self.opened = self._before.pop() if self._before else _Opened()


def routes_in() -> Iterator[Route]:
    """Yield every route of the site; the part that is a regular expression is wild."""
    return _routes_below(get_resolver(), "", "/")


def _routes_below(resolver: URLResolver, template: str, known: str) -> Iterator[Route]:
    for each in resolver.url_patterns:
        written = template + str(each.pattern)
        for read in _read_pattern(each.pattern):
            if isinstance(each, URLResolver):
                yield from _routes_below(each, written, known + read)
            else:
                yield read_route(known + read, None, "<", r"<\*\*>")._replace(template=f"/{written}")


def _read_pattern(pattern: Any) -> list[str]:  # noqa: ANN401
    """Return a pattern with `<*>` for any text within a segment, and `<**>` for several segments."""
    if isinstance(pattern, LocalePrefixPattern):
        languages = [f"{code}/" for code, _ in settings.LANGUAGES]
        return languages if pattern.prefix_default_language else ["", *languages]
    if not isinstance(pattern, RoutePattern):
        return ["<**>/"]  # a regular expression
    spans = [re.fullmatch(each.regex, "a/b") for each in pattern.converters.values()]
    return [re.sub(r"<[^>]*>", "<**>" if any(spans) else "<*>", str(pattern))]


rate_limits = RateLimits()
setting_changed.connect(rate_limits.follow_settings)
