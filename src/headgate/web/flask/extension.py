"""The extension: its settings, and its hooks around each request."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Unpack

from flask import Flask, Request, Response, current_app
from werkzeug.routing import Rule

from headgate.errors import HeadgateError, InvalidCall
from headgate.policy.edges import METHODS
from headgate.steps import Steps, run
from headgate.web.edge import Edge
from headgate.web.endpoint import EndpointLimit
from headgate.web.flask.requests import (
    LIMITED,
    FlaskLimits,
    current_flask,
    current_request,
    ended,
    exceeded,
    limits_by_hand,
    reader,
    refuse,
    with_decision,
)
from headgate.web.flask.views import EXTENSION, NOWHERE, Place, call, place_of
from headgate.web.options import OPTION_NAMES, Options, PolicyGiven, WebOptions
from headgate.web.request_limits import limits_like
from headgate.web.responder import RAISED, Raised
from headgate.web.runtime import Runtime
from headgate.web.werkzeug_routes import routes_in
from headgate.web.wsgi import App as WsgiApp
from headgate.web.wsgi import Environ, StartResponse, path_of
from headgate.wording import nearest

PREFIX: Final = "HEADGATE_"
ENABLED: Final = "HEADGATE_ENABLED"
PROXY_FIXED: Final = "werkzeug.proxy_fix.orig"
FORWARDED: Final = ("HTTP_X_FORWARDED_FOR", "HTTP_FORWARDED")
SETTINGS: Final = ("policy", "default", "key", *(name for name in OPTION_NAMES if name != "enabled"))


class RateLimits(Edge[str]):
    """The extension. `default` are the limits of each endpoint that has none of its own, counted by `key` (`ip`).

    Options that are not given are read from the app's config: `store` from `HEADGATE_STORE`, and so on. Functions
    (`client`, `user`, `claims`, `plan`) take no arguments: they read `flask.request`, `g` or `current_user`.
    """

    def __init__(
        self,
        app: Flask | None = None,
        policy: PolicyGiven | None = None,
        *,
        default: Any = None,  # noqa: ANN401
        key: Any = None,  # noqa: ANN401
        **options: Unpack[Options],
    ) -> None:
        self._given = {"policy": policy, "default": default, "key": key, **options}
        self._apps: list[Flask] = []
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask) -> None:
        """Limit this app. Functions of `before_request` that were registered earlier are called earlier."""
        if EXTENSION in app.extensions:
            raise InvalidCall("this app already has a RateLimits; create one for each app, and call init_app once")
        edge = AppLimits(app, settings_from(app.config, SETTINGS, self._given))
        app.before_request(edge.deciding())
        app.wsgi_app = edge.sending(app.wsgi_app)  # type: ignore[assignment]
        for raised in RAISED:
            if raised not in app.error_handler_spec[None][None]:  # the app's own handler is kept
                app.register_error_handler(raised, edge.raised)
        app.extensions[EXTENSION] = edge
        app.app_ctx_globals_class = with_decision(app.app_ctx_globals_class)
        self._apps.append(app)

    @property
    def _runtime(self) -> Runtime[str]:  # type: ignore[override]
        """The runtime of the current app."""
        apps = [current_flask()] if current_app else self._apps
        edge: AppLimits | None = apps[0].extensions.get(EXTENSION) if len(apps) == 1 else None
        if edge is None:
            raise HeadgateError("no app here; write `with app.app_context():` around it, after limits.init_app(app)")
        return edge._runtime


class AppLimits(Edge[str]):
    """The limits of one app."""

    def __init__(self, app: Flask, settings: Mapping[str, Any]) -> None:
        options = dict(settings)
        policy, default, key = options.pop("policy", None), options.pop("default", None), options.pop("key", "ip")
        options.update(
            {name: _asking(options[name]) for name in ("client", "user", "claims", "plan") if name in options}
        )
        read = reader(options.pop("user", None))
        self._app = app
        self._config = app.config
        self._places: defaultdict[str, dict[str, Place]] = defaultdict(dict)
        """Endpoints by their name and the method of a request."""
        self.default = None if default is None else EndpointLimit(default, {"key": key}, call)
        self._name = f"headgate.limits.{id(self):x}"
        """The name of a request's limits in its environ, which apps may pass on to each other."""
        self._fronted = policy is not None
        """Whether a policy is in front of every endpoint."""
        self._runtime: Runtime[str] = Runtime(policy, read, WebOptions(**options), awaited=False)
        self._runtime.routes = lambda: routes_in(app)
        self._runtime.endpoints = self._endpoints
        self._limits = limits_like(FlaskLimits, self._runtime)

    def deciding(self) -> Callable[[], Response | None]:
        """Return the function that decides on each request whose endpoint is known, before its view is called.

        A function, and not a method: Flask inspects it before each call, which takes longer for a method.
        """
        runtime, config, places, name, fronted = self._runtime, self._config, self._places, self._name, self._fronted

        def before() -> Response | None:
            asked = current_request()
            if not config.get(ENABLED, True):  # read each time: tests change it after the app is made
                return None
            environ, rule = asked.environ, asked.url_rule
            if runtime.looks:
                runtime.look(_unforwarded(environ) if PROXY_FIXED in environ else environ)
            place = NOWHERE if rule is None else places[rule.endpoint].get(asked.method) or self.place(rule, asked)
            wanted = place.limits
            if not fronted and not wanted:
                return None
            limits: FlaskLimits = environ.get(name) or self._limits_of(asked)
            asked.headgate_limits = limits  # type: ignore[attr-defined]
            peer = environ.get("REMOTE_ADDR")
            admitted: bool | Steps[bool] | None = None
            if fronted:
                admitted = limits.admit(environ, environ["REQUEST_METHOD"], path_of(environ), peer)
                if not (admitted if isinstance(admitted, bool) else run(admitted)):
                    return refuse(limits, environ)
            if wanted:
                shortcuts, shortcut = place.found
                if shortcuts is not runtime.fast_paths_at:
                    shortcut = place.find(runtime.fast_paths_at)
                admitted = None if shortcut is None else limits.admit_at(shortcut, wanted, environ, peer)
                if admitted is True:
                    return None
                if admitted is None:
                    admitted = limits.admit(environ, place.method, place.route, peer, wanted)
                if not (admitted if isinstance(admitted, bool) else run(admitted)):
                    return refuse(limits, environ)
            return None

        return before

    def come_to(self, asked: Request, wanted: tuple[EndpointLimit, ...], name: str) -> Response | None:
        """Decide on a request by limits at its view that were hidden by another decorator."""
        if not self._config.get(ENABLED, True):
            return None
        limits, environ = self._limits_of(asked), asked.environ
        admitted = limits.admit(environ, environ["REQUEST_METHOD"], name, environ.get("REMOTE_ADDR"), wanted)
        return None if (admitted if isinstance(admitted, bool) else run(admitted)) else refuse(limits, environ)

    def _limits_of(self, asked: Request) -> FlaskLimits:
        limits: FlaskLimits | None = getattr(asked, LIMITED, None)
        if limits is None:
            limits = asked.environ.get(self._name)
            limits = limits_by_hand(asked, self._limits) if limits is None else limits
            asked.headgate_limits = limits  # type: ignore[attr-defined]
        return limits

    def sending(self, app: WsgiApp) -> WsgiApp:
        """Return the app's `wsgi_app`, which adds the header fields to each response, and settles the charges by it.

        Not in `after_request`: there, functions of others may still change the response. And each field takes Flask a
        microsecond there.
        """
        limits_of, name = self._limits, self._name

        def wsgi_app(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
            limits = environ[name] = limits_of()
            limits.start_response = start_response
            try:
                pieces = app(environ, limits.start)
            except BaseException:
                if limits.follows:
                    run(limits.end())
                raise
            return ended(pieces, limits) if limits.follows else pieces

        return wsgi_app

    def raised(self, error: Raised) -> Any:  # noqa: ANN401
        """Handle an error of a limiter or a budget of the app's own in a view like a refusal of the extension."""
        asked = current_request()
        answer = self._limits_of(asked).deny_for(error, asked.environ.get("HTTP_ACCEPT"), asked.environ)
        return current_app.handle_user_exception(exceeded(answer, getattr(error, "decision", None)))

    def _endpoints(self) -> Iterator[tuple[str, tuple[EndpointLimit, ...]]]:
        """Yield the route and the limits of each endpoint; not kept, as limits may still be added to it."""
        for rule in self._app.url_map.iter_rules():
            for method in rule.methods or ():
                place = place_of(self._app, rule, method, self.default)
                if place.limits:
                    yield place.route, place.limits

    def place(self, rule: Rule, asked: Request) -> Place:
        """Find the limits of an endpoint; at its first request, as views may be added after the extension."""
        found = place_of(self._app, rule, asked.method, self.default)
        if asked.method in METHODS:  # where a route takes every method, a client can invent any number of them
            self._places[rule.endpoint][asked.method] = found
        return found


def _asking(function: Callable[[], Any]) -> Callable[[Any], Any]:
    return lambda _: current_app.ensure_sync(function)()


def _unforwarded(environ: Mapping[str, Any]) -> dict[str, Any]:
    """Return an environ without forwarded headers, which Werkzeug's ProxyFix has applied: no warning is due."""
    return {name: value for name, value in environ.items() if name not in FORWARDED}


def settings_from(config: Mapping[Any, Any], names: Sequence[str], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments, completed from the config; None counts as absent. Raise for an unknown setting."""
    known = [name.upper() for name in (*names, "enabled")]
    for name in map(str, config):
        word = name.removeprefix(PREFIX)
        if word != name and word not in known:
            near = nearest(word, known)
            if near or name not in os.environ:  # the environment may have been read as a whole, with other programs'
                hint = f"did you mean {PREFIX}{near}?" if near else f"use one of {', '.join(known)}"
                raise InvalidCall(f"unknown setting {name} in the app's config; {hint}")
    if not isinstance(config.get(ENABLED, True), bool):
        raise InvalidCall(f"{ENABLED} must be True or False; got {config[ENABLED]!r}")
    found = {name: config.get(PREFIX + name.upper()) for name in names}
    found.update((name, value) for name, value in given.items() if value is not None)
    return {name: value for name, value in found.items() if value is not None}
