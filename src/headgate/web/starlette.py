"""Starlette: a policy in front of the app, and limits at its endpoints.

limits = RateLimits(app, default="100/minute", store="redis://cache")

@limited("5/minute", key=lambda request: request.headers.get("x-api-key"))
async def search(request): ...
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Unpack

from headgate.web.asgi_sending import Receive, Send
from headgate.wording import requiring

with requiring("headgate.web.starlette", "starlette"):
    from headgate.web.starlette_limits import (
        EXEMPT,
        LIMITS,
        Limit,
        connection_of,
        enter,
        exempt,
        limited,
        request_limits_of,
    )


from headgate.errors import HeadgateError, InvalidCall
from headgate.web import asgi
from headgate.web.asgi_requests import Scope
from headgate.web.callables import full_name, mark_of, misplaced
from headgate.web.edge import Edge
from headgate.web.endpoint import EndpointLimit
from headgate.web.options import Options, PolicyGiven
from headgate.web.request_decision import RequestDecision
from headgate.web.responder import RAISED
from headgate.web.starlette_refusals import RateLimitExceeded, answer_raised, send_refusal
from headgate.web.starlette_routes import as_included, endpoints_of, placed, route_named, routes_in
from headgate.web.unmatched_rules import router_behind

__all__ = [
    "Limit",
    "RateLimitExceeded",
    "RateLimitMiddleware",
    "RateLimits",
    "RequestDecision",
    "exempt",
    "limited",
    "send_refusal",
]


class RateLimitMiddleware(asgi.RateLimitMiddleware):
    """The ASGI middleware, for apps whose endpoints have limits of their own; the policy is optional."""

    endpoints = True

    def __init__(self, app: asgi.App, policy: PolicyGiven | None = None, **options: Unpack[Options]) -> None:
        super().__init__(app, policy, **options)
        self.routes_of: Callable[[], Any] = lambda: getattr(router_behind(self.app), "routes", ())
        self._runtime.check = self._check

    async def _other(self, kind: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Fail the startup of an app with a misplaced decorator, whose limit would never apply."""
        if kind == "lifespan":
            try:
                self._check()
            except InvalidCall as wrong:
                await receive()
                await send({"type": "lifespan.startup.failed", "message": str(wrong)})
                raise
        await super()._other(kind, scope, receive, send)

    def _check(self) -> None:
        name = misplaced(each.endpoint for each in endpoints_of(self.routes_of()))
        if name is not None:
            raise InvalidCall(
                f"@limited is above the route's decorator at {name}: the route calls the endpoint without its limit. "
                "In the code, swap the two lines"
            )


class RateLimits(Edge[bytes]):
    """The limits of an app in one line, around all of it: unhandled errors get header fields too.

    `default` are the limits of each endpoint that has none of its own. The policy comes before any other middleware: if
    its rules need the work of one of them (a user, a session), add `RateLimitMiddleware` after that one.
    """

    def __init__(
        self,
        app: Any,  # noqa: ANN401
        policy: PolicyGiven | None = None,
        *,
        default: Any = None,  # noqa: ANN401
        key: Any = "ip",  # noqa: ANN401
        **options: Unpack[Options],
    ) -> None:
        if getattr(app, "middleware_stack", None) is not None:
            raise InvalidCall("the app is already running; write RateLimits(app) where the app is created")
        self._outside = RateLimitMiddleware(_nothing, policy, **options)
        self._runtime = self._outside._runtime
        self._runtime.routes = lambda: routes_in(app)
        self._runtime.endpoints = self._endpoints
        self._outside.routes_of = lambda: app.routes
        self._app = app
        self._build = app.build_middleware_stack
        self._default = None if default is None else Limit(default, key=key)
        app.build_middleware_stack = self._surround

    def _surround(self) -> asgi.App:
        handlers = self._app.exception_handlers
        if HeadgateError not in handlers:  # the app's own handler is kept
            for raised in RAISED:
                handlers.setdefault(raised, answer_raised)
        inside: asgi.App = self._build()

        async def cover_first(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "lifespan":  # during startup an app may still add routes
                self._cover()
                self._outside.app = inside
            await inside(scope, receive, send)

        self._outside.app = inside if self._default is None else cover_first
        return self._outside

    def _cover(self) -> None:
        """Put the default limits in front of every endpoint, once for a route that is in two places."""
        for route in {id(each): each for each in endpoints_of(self._app.routes)}.values():
            route.handle = functools.partial(self._handle, route, route.handle)

    async def _handle(self, route: Any, handle: asgi.App, scope: Scope, *channels: Any) -> None:  # noqa: ANN401
        """Apply the default limits to an endpoint without limits, unless a mounted app has its own `RateLimits`."""
        connection = connection_of(scope, *channels)
        methods = getattr(route, "methods", None) or (scope.get("method"),)  # other methods get a 405
        if scope.get("method") in methods and request_limits_of(connection).runtime is self._runtime:
            route = as_included(route, scope)
            if self._default and not self.limits_at(route) and not mark_of(route.endpoint, EXEMPT):
                await enter(connection, (self._default,))
        await handle(scope, *channels)

    def _endpoints(self) -> Iterator[tuple[str, tuple[EndpointLimit, ...]]]:
        """Yield the route and the limits of each decision at each endpoint."""
        for template, route in placed(self._app.routes):
            decisions = [[each for each in limits if not each.messages] for limits in self.decisions_at(route)]
            if self._default and not self.limits_at(route) and not mark_of(route.endpoint, EXEMPT):
                decisions = [[self._default]]
            name = full_name(route.endpoint)
            for times, limits in enumerate(filter(None, decisions), 1):
                yield route_named(template, name, times), tuple(each.limit for each in limits)

    def decisions_at(self, route: Any) -> Sequence[Sequence[Limit]]:  # noqa: ANN401
        """Return the limits of each decision at an endpoint, in the order in which they are made."""
        return [decorators_at(route)]

    def limits_at(self, route: Any) -> tuple[Limit, ...]:  # noqa: ANN401
        """Return an endpoint's own limits."""
        return decorators_at(route)


def decorators_at(route: Any) -> tuple[Limit, ...]:  # noqa: ANN401
    """Return the limits of an endpoint's decorators."""
    limits: tuple[Limit, ...]
    _, _, limits = mark_of(route.endpoint, LIMITS) or (None, None, ())
    return limits


async def _nothing(scope: Scope, receive: Receive, send: Send) -> None:
    """Replace the app until it is built."""
