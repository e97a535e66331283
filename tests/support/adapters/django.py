"""Django, under WSGI and under ASGI."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.support.django_site import LIMITS  # which sets Django up, before anything of it is imported

from django.core.handlers.asgi import ASGIHandler  # isort: skip
from django.core.handlers.wsgi import WSGIHandler  # isort: skip
from django.http import HttpResponse, HttpResponseNotAllowed, StreamingHttpResponse  # isort: skip
from django.test import override_settings  # isort: skip
from django.urls import path  # isort: skip

from rest_framework import decorators  # isort: skip

from headgate.testing.edges import App, Asked, EdgeSuite, Endpoint, Reply, with_functions
from headgate.web import django
from tests.support.adapters.bare import WsgiSite
from tests.support.adapters.loops import AsgiSite, asked_of, in_loop, pieces_of


def asked(request: Any) -> Asked:
    query = request.META.get("QUERY_STRING", "")
    seen = getattr(request, "rate_limit", None)
    return asked_of(request.method, request.path, query, request.headers.items(), seen)


def respond(reply: Reply, stream: Any) -> HttpResponse:
    """In Django's words."""
    if isinstance(reply.body, bytes):
        return HttpResponse(reply.body, status=reply.status, headers=dict(reply.headers))
    return StreamingHttpResponse(stream(reply.body), status=reply.status, headers=dict(reply.headers))


def not_allowed(endpoint: Endpoint, request: Any) -> HttpResponse | None:
    """The answer to a method that an endpoint does not have. Decorators of Django 4.2 take no views with `async`."""
    methods = [*endpoint.methods, *(["HEAD"] if "GET" in endpoint.methods else [])]
    return None if request.method in methods else HttpResponseNotAllowed(methods)


class DjangoSuite(EdgeSuite):
    """Sync views behind the middleware, in the thread that asks."""

    test_default_limits_do_not_count_methods_that_an_endpoint_does_not_answer = None  # type: ignore[assignment]
    """In Django a 405 is the answer of a view, which is counted as any other."""

    @contextmanager
    def serve(self, app: App) -> Iterator[Any]:
        """The settings of a site, for a while."""
        given = {"policy": app.policy, "default": app.default, "key": app.key}
        adapted = with_functions(app.options, lambda function: lambda request: function(asked(request)))
        headgate = {name.upper(): value for name, value in {**given, **adapted}.items() if value is not None}
        urls = type("Urls", (), {"urlpatterns": [self.route(each) for each in app.endpoints]})
        with override_settings(ROOT_URLCONF=urls, MIDDLEWARE=[LIMITS], HEADGATE=headgate), self.served() as site:
            yield site

    @contextmanager
    def served(self) -> Iterator[Any]:
        yield WsgiSite(WSGIHandler(), django.rate_limits, strips=True)

    def route(self, endpoint: Endpoint) -> Any:
        """One entry of the URLconf."""
        view = self.view(endpoint)
        for limit in reversed(endpoint.limits):
            adapted = with_functions(limit, lambda function: lambda request: function(asked(request)))
            view = django.limited(**adapted)(view)
        if endpoint.exempt:
            view = django.exempt(view)
        return path(re.sub(r"\{(\w+)\}", r"<\1>", endpoint.path[1:]), view)

    def view(self, endpoint: Endpoint) -> Any:
        def view(request: Any, **_: Any) -> HttpResponse:
            return not_allowed(endpoint, request) or respond(endpoint.handle(asked(request)), iter)

        return view


class DjangoAsyncSuite(DjangoSuite):
    """Async views behind the same middleware, awaited in an event loop."""

    @contextmanager
    def served(self) -> Iterator[Any]:
        with in_loop() as run:
            try:
                yield AsgiSite(ASGIHandler(), django.rate_limits, run)
            finally:
                if hasattr(django.rate_limits.store, "aclose"):  # Django does not tell when a server ends
                    run(django.rate_limits.store.aclose())

    def view(self, endpoint: Endpoint) -> Any:
        async def view(request: Any, **_: Any) -> HttpResponse:
            answered = not_allowed(endpoint, request)
            return answered or respond(await asyncio.to_thread(endpoint.handle, asked(request)), pieces_of)

        return view


class DrfSuite(DjangoSuite):
    """Views of Django REST framework, whose own throttles have tests of their own."""

    def view(self, endpoint: Endpoint) -> Any:
        def view(request: Any, **_: Any) -> HttpResponse:
            return respond(endpoint.handle(asked(request)), iter)

        return decorators.api_view([*endpoint.methods, "HEAD"])(view)
