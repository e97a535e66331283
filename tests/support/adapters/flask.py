"""Flask."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

from flask import Flask, Response, g, request

from headgate.testing.edges import App, EdgeSuite, Endpoint, with_functions
from headgate.web import flask
from tests.support.adapters.bare import WsgiSite, of_environ


def without_arguments(function: Any) -> Any:
    """Functions of the app's look at Flask's request."""
    return lambda: function(of_environ(request.environ))


class FlaskSuite(EdgeSuite):
    """`RateLimits(app)`."""

    @contextmanager
    def serve(self, app: App) -> Iterator[Any]:
        """As a WSGI server does."""
        built = Flask("site")
        options = with_functions(app.options, without_arguments)
        limits = flask.RateLimits(built, app.policy, default=app.default, key=app.key, **options)
        for endpoint in app.endpoints:
            put(built, endpoint)
        with closing(limits):
            yield WsgiSite(built.wsgi_app, limits)


def put(built: Flask, endpoint: Endpoint) -> None:
    """One route."""

    def view(**_: Any) -> Response:
        reply = endpoint.handle(replace(of_environ(request.environ), rate_limit=g.rate_limit))
        return Response(reply.body, reply.status, dict(reply.headers))

    path, name = re.sub(r"\{(\w+)\}", r"<\1>", endpoint.path), f"at {endpoint.path}".replace(".", "")
    route = built.route(path, endpoint=name, methods=list(endpoint.methods))
    made: Any = route(view) if endpoint.above else view
    for limit in reversed(endpoint.limits):
        made = flask.limited(**with_functions(limit, without_arguments))(made)
    if endpoint.exempt:
        made = flask.exempt(made)
    if not endpoint.above:
        route(made)
