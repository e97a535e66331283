"""Starlette, with limits around the app or as a middleware."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from headgate.testing.edges import App, Asked, EdgeSuite, Endpoint, Reply, with_functions
from headgate.web import starlette
from tests.support.adapters.bare import of_scope, options_of
from tests.support.adapters.loops import started


def asked(request: Request) -> Asked:
    return of_scope(request.scope)


def respond(reply: Reply) -> Response:
    """In Starlette's words."""
    if isinstance(reply.body, bytes):
        return Response(reply.body, reply.status, dict(reply.headers))
    return StreamingResponse(reply.body, reply.status, dict(reply.headers))


def by_request(function: Any) -> Any:
    return lambda request: function(asked(request))


class StarletteSuite(EdgeSuite):
    """`RateLimits(app)`."""

    edge: ClassVar[Any] = starlette
    middleware = False

    @contextmanager
    def serve(self, app: App) -> Iterator[Any]:
        """Endpoints are functions, which Starlette runs in threads; every second one is a coroutine."""
        built = self.framework()
        for at, endpoint in enumerate(app.endpoints):
            self.put(built, endpoint, awaited=at % 2 == 1)
        options = options_of(app, lambda function: lambda scope: function(of_scope(scope)))
        if self.middleware and app.default is None:
            held: list[Any] = []
            policy = app.policy

            def middleware(app: Any) -> Any:  # by this name, as older versions of Starlette give it
                held.append(self.edge.RateLimitMiddleware(app, policy, **options))
                return held[0]

            built.add_middleware(middleware)
            built.middleware_stack = built.build_middleware_stack()
            limits = held[0]
        else:
            limits = self.edge.RateLimits(built, app.policy, default=app.default, key=app.key, **options)
        with started(built, limits) as site:
            yield site

    def framework(self) -> Any:
        return Starlette()

    def put(self, built: Any, endpoint: Endpoint, awaited: bool) -> None:
        """One route."""

        def view(request: Request) -> Response:
            return respond(endpoint.handle(asked(request)))

        async def coroutine(request: Request) -> Response:
            return respond(await asyncio.to_thread(endpoint.handle, asked(request)))

        view = coroutine if awaited else view  # type: ignore[assignment]
        if endpoint.above:
            built.add_route(endpoint.path, view, list(endpoint.methods))
        decorated = self.decorated(view, endpoint)
        if not endpoint.above:
            built.add_route(endpoint.path, decorated, list(endpoint.methods))

    def decorated(self, view: Any, endpoint: Endpoint) -> Any:
        for limit in reversed(endpoint.limits):
            view = self.edge.limited(**with_functions(limit, by_request))(view)
        return self.edge.exempt(view) if endpoint.exempt else view


class StarletteMiddlewareSuite(StarletteSuite):
    """`RateLimitMiddleware`, among the app's own; default limits need `RateLimits`."""

    middleware = True
    finds_endpoints = False  # those of an app are known to its `RateLimits`
    test_an_exception_that_nobody_handles_tells_what_is_left = None  # type: ignore[assignment]
    """Starlette answers for it outside of every middleware."""
