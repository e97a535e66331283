"""The limits of this process: what `settings.HEADGATE` says, opened."""

from __future__ import annotations

from functools import cached_property, partial
from threading import RLock
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed

from headgate.forks import after_fork
from headgate.stores import Store, open_store
from headgate.web.django.request import read_request
from headgate.web.django.routes import routes_in
from headgate.web.django.settings import Setup
from headgate.web.headers import WSGI
from headgate.web.runtime import Runtime


class _Opened:
    """Settings, and the stores and runtimes by them: one runtime for threads, one for event loops, made when needed."""

    def __init__(self, bound: Store | None = None) -> None:
        self._bound = bound
        self._runtimes: dict[bool, Runtime[str]] = {}
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

    def _use(self, store: Store) -> None:
        with self._lock:
            self._bound = None if store is self.__dict__.get("_own") else store
            for runtime in self._runtimes.values():
                runtime._use(store)

    def renew_lock(self) -> None:
        """After a fork, which may have copied the lock while another thread held it."""
        self._lock = RLock()

    def inherit(self) -> _Opened:
        """Other settings on the store that a test has chosen, where one has."""
        return _Opened(self._bound)

    def runtime(self, awaited: bool) -> Runtime[str]:
        runtime = self._runtimes.get(awaited)
        if runtime is None:
            with self._lock:
                runtime = self._runtimes.get(awaited) or self._open(awaited)
        return runtime

    def _open(self, awaited: bool) -> Runtime[str]:
        setup = self.setup
        if setup.mistakes:
            raise ImproperlyConfigured("\n".join(each.message for each in setup.mistakes))
        read = partial(read_request, setup.user_of)
        runtime = self._runtimes[awaited] = Runtime(
            setup.policy, WSGI, read, awaited=awaited, store=self.store, **setup.options
        )
        runtime.routes = routes_in
        return runtime

    def close(self) -> None:
        """Let go of what was opened here; a store that came ready is its maker's."""
        for runtime in self._runtimes.values():
            runtime.close()
        if "_own" in self.__dict__ and self._own is not self.setup.store and hasattr(self._own, "close"):
            self._own.close()


class RateLimits:
    """The limits of this process. `headgate.testing` freezes them, forgets them and switches them off."""

    def __init__(self) -> None:
        self.opened = _Opened()
        self._before: list[_Opened] = []
        """Tests change settings, and change them back."""

    @property
    def setup(self) -> Setup:
        """What the settings say."""
        return self.opened.setup

    def runtime(self, awaited: bool) -> Runtime[str]:
        """For an event loop, or for threads; raises `ImproperlyConfigured` where the settings are wrong."""
        return self.opened.runtime(awaited)

    @property
    def store(self) -> Store:
        """Where is counted, unless a rule says otherwise."""
        return self.opened.store

    @property
    def namespace(self) -> str:
        """Of every count made here."""
        return self.runtime(False).namespace

    def _use(self, store: Store) -> None:
        """Count there from now on, as `headgate.testing.frozen` and `disabled` do for a while."""
        self.opened._use(store)

    def follow_settings(self, setting: str, enter: bool, **_: Any) -> None:  # noqa: ANN401
        """Other settings have other counts. When a test is over, those from before are back."""
        if setting != "HEADGATE":
            return
        if enter:
            self._before.append(self.opened)
            self.opened = self.opened.inherit()
        else:
            self.opened.close()
            self.opened = self._before.pop() if self._before else _Opened()


rate_limits = RateLimits()
setting_changed.connect(rate_limits.follow_settings)
