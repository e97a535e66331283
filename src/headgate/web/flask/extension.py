"""The extension: what it is told, and what it does with each request."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypedDict, Unpack

from flask import Flask, Request, Response, current_app
from werkzeug.routing import Rule

from headgate.errors import HeadgateError, InvalidCall, RateLimited
from headgate.policy.outcome import refused
from headgate.policy.steps import run
from headgate.stores import Store
from headgate.web.endpoint import EndpointLimit
from headgate.web.flask.case import Case, Passed
from headgate.web.flask.config import ENABLED, settings_from
from headgate.web.flask.requests import CASE, current_flask, current_request, exceeded, reader, refuse, tell
from headgate.web.flask.views import EXTENSION, NOWHERE, Place, call, place_of
from headgate.web.headers import WSGI
from headgate.web.refusal import Refusal
from headgate.web.responder import Found, decide
from headgate.web.runtime import PolicyGiven, Runtime
from headgate.web.werkzeug_routes import routes_in
from headgate.web.wsgi import path_of

PROXY_FIXED: Final = "werkzeug.proxy_fix.orig"
FORWARDED: Final = ("HTTP_X_FORWARDED_FOR", "HTTP_FORWARDED")


class Options(TypedDict, total=False):
    """As every edge's, but that functions take no arguments: they look at `flask.request`, `g` or `current_user`."""

    store: Store | str | None
    trusted_proxies: Sequence[str]
    proxy_hops: int
    forwarded_header: str
    user: Callable[[], str | None] | None
    claims: Callable[[], Mapping[str, Any] | None] | None
    plan: Callable[[], str | None] | None
    refusal: Refusal | None


SETTINGS: Final = ("policy", "default", "key", *Options.__annotations__)


class RateLimits:
    """The extension. `default` are the limits of each endpoint that has none of its own, counted by `key` (`ip`).

    What is not given here is looked for in the app's config: `store` in `HEADGATE_STORE`, and so on.
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
        self._app = app
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask) -> None:
        """Limit this app. Functions of `before_request` that were registered earlier are called earlier."""
        if EXTENSION in app.extensions:
            raise InvalidCall("the app has its limits already: one RateLimits for an app, and init_app once")
        edge = Edge(app, settings_from(app.config, SETTINGS, self._given))
        app.before_request(edge.before)
        app.after_request(edge.after)
        app.teardown_request(edge.teardown)
        if RateLimited not in app.error_handler_spec[None][None]:  # the app's own goes first
            app.register_error_handler(RateLimited, edge.rate_limited)
        app.extensions[EXTENSION] = edge

    @property
    def runtime(self) -> Runtime[str]:
        """Where the current app's counts are: for `headgate.testing`, to close its stores, to reload its policy."""
        app = current_flask() if current_app else self._app
        edge: Edge | None = app.extensions.get(EXTENSION) if app is not None else None
        if edge is None:
            raise HeadgateError("which app's? Ask within `with app.app_context():`, after limits.init_app(app)")
        return edge.runtime


class Edge:
    """The limits of one app."""

    def __init__(self, app: Flask, settings: Mapping[str, Any]) -> None:
        options = dict(settings)
        policy, default, key = options.pop("policy", None), options.pop("default", None), options.pop("key", "ip")
        options.update({name: _asking(options[name]) for name in ("claims", "plan") if name in options})
        read = reader(options.pop("user", None))
        self._app = app
        self._config = app.config
        self._places: dict[tuple[str, str], Place] = {}
        self.default = None if default is None else EndpointLimit(default, {"key": key}, call)
        self.fronted = policy is not None
        """There is a policy in front of every endpoint."""
        self.runtime: Runtime[str] = Runtime(policy, WSGI, read, awaited=False, **options)
        self.runtime.routes = lambda: routes_in(app)

    def before(self) -> Response | None:
        """Rule on a request whose endpoint is known; a no answers for the view, or is raised."""
        asked = current_request()
        if not self._config.get(ENABLED, True):  # looked at each time: tests switch it when the app is made
            return None
        runtime, environ, rule = self.runtime, asked.environ, asked.url_rule
        if runtime.looks:
            runtime.look(_unforwarded(environ) if PROXY_FIXED in environ else environ)
        place = NOWHERE if rule is None else self.place(rule, asked.method)
        if self.fronted:
            found = None if place.limits else self._fast_path_in_front(environ)
        elif place.limits:
            found = runtime.fast_path_at(place.limits, place.route, place.method)
        else:
            return None
        if found is not None:
            responder, fast_path, _ = found
            if fast_path is None:  # no rule is for such requests
                return None
            if fast_path.by_address:
                client = environ.get("REMOTE_ADDR") if runtime.proxies is None else runtime.view(environ).client
                decision = decide(fast_path, fast_path.key_by(client)) if client else None
                if decision is not None and decision.allowed:
                    asked.__dict__[CASE] = Passed(found, decision, place.limits)
                    return None
                if decision is not None:
                    case = asked.__dict__[CASE] = Case(runtime)
                    return refuse(
                        case.refuse(responder, refused(fast_path.group, decision), environ.get("HTTP_ACCEPT"))
                    )
        return self._compiled(asked, place)

    def _fast_path_in_front(self, environ: dict[str, Any]) -> Found[str] | None:
        return self.runtime.fast_paths[environ["REQUEST_METHOD"], path_of(environ)]

    def _compiled(self, asked: Request, place: Place) -> Response | None:
        """A request that has to be looked at."""
        case = asked.__dict__[CASE] = Case(self.runtime)
        view, no = self.runtime.view(asked.environ), None
        if self.fronted:
            view.route = asked.url_rule.rule if asked.url_rule is not None else None
            no = case.front(view)
        if place.limits and no is None:
            view.route, view.method = place.route, place.method
            no = case.come_to(view, place.limits)
        return None if no is None else refuse(no)

    def come_to(self, asked: Request, limits: tuple[EndpointLimit, ...], name: str) -> Response | None:
        """Rule on a request that has come to limits which could not be seen from outside."""
        if not self._config.get(ENABLED, True):
            return None
        case: Case | Passed | None = asked.__dict__.get(CASE)
        if not isinstance(case, Case):
            case = asked.__dict__[CASE] = Case(self.runtime) if case is None else case.opened(self.runtime)
        view = self.runtime.view(asked.environ)
        view.route = name
        no = case.come_to(view, limits)
        return None if no is None else refuse(no)

    def after(self, response: Response) -> Response:
        """Say in the response what is left, and count what it says."""
        case: Case | Passed | None = current_request().__dict__.get(CASE)
        if isinstance(case, Passed):
            tell(response.headers, case.found[2](case.decision), True, self.runtime)
        elif case is not None:
            if case.follows:
                run(case.after(response.status_code, response.headers.get))
            tell(response.headers, case.fields if case.no is None else case.no.told, case.no is None, self.runtime)
            if (
                case.holds_permits and response.is_streamed and "Content-Length" not in response.headers
            ):  # made as it is sent
                case.streams = True
                response.call_on_close(lambda: run(case.end()))
        return response

    def rate_limited(self, error: RateLimited) -> Any:  # noqa: ANN401
        """A limiter of the app's own has refused in a view: a refusal as one of the extension's, to be handled so."""
        asked = current_request()
        case: Case | Passed | None = asked.__dict__.get(CASE)
        if not isinstance(case, Case):
            case = asked.__dict__[CASE] = Case(self.runtime) if case is None else case.opened(self.runtime)
        no = case.refuse_by(error.decision, asked.environ.get("HTTP_ACCEPT"))
        return current_app.handle_user_exception(exceeded(no))

    def teardown(self, error: BaseException | None) -> None:
        """Count a request that ends without a response, and end what is in flight."""
        case: Case | Passed | None = current_request().__dict__.get(CASE)
        if isinstance(case, Case) and case.follows and not case.streams:
            run(case.end())

    def place(self, rule: Rule, method: str) -> Place:
        """What applies to an endpoint; found out when it is first asked, as blueprints and views come after this."""
        place = self._places.get((rule.endpoint, method))
        if place is None:
            place = self._places[rule.endpoint, method] = place_of(self._app, rule, method, self.default)
        return place


def _asking(function: Callable[[], Any]) -> Callable[[Any], Any]:
    return lambda _: current_app.ensure_sync(function)()


def _unforwarded(environ: Mapping[str, Any]) -> dict[str, Any]:
    """A request that Werkzeug's ProxyFix has set right, without the headers that hints would warn of."""
    return {name: value for name, value in environ.items() if name not in FORWARDED}
