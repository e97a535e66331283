"""Views of Django's requests, for rules, and the results of the app's own functions for them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from asgiref.sync import sync_to_async
from django.conf import settings
from django.conf.urls.i18n import is_language_prefix_patterns_used
from django.core.exceptions import SynchronousOnlyOperation
from django.utils.functional import LazyObject
from django.utils.translation import get_language

from headgate.policy import Proxies, RequestView
from headgate.web import asgi_requests, wsgi
from headgate.web.clients import AskedView, UserOf

Request = Any
"""Django's request, or REST framework's, which has the same attributes."""
View = Any
"""A function, or the result of a class's `as_view`."""


class SiteView(AskedView):
    """One request."""

    __slots__ = ("known",)

    known: dict[Callable[..., Any], Any]
    """Results of the app's functions."""


def read_request(user_of: UserOf, request: Request, proxies: Proxies | None) -> SiteView:
    """Return the view of a request. Its headers are the server's, as Django may have joined lines."""
    scope = getattr(request, "scope", None)
    raw = wsgi.read_environ(request.META, proxies) if scope is None else asgi_requests.read_scope(scope, proxies)
    view = SiteView(request.method, request.path_info or "/", raw.headers, raw.peer, proxies)
    view.query_string = raw.query_string
    view.request = request
    view.known = {}
    view.ask_for_user(user_of)
    return view


def lines_of(request: Request, header: str) -> list[str]:
    """Return the lines of one header, as they came from the server."""
    scope = getattr(request, "scope", None)
    return wsgi.lines_of(request.META, header) if scope is None else asgi_requests.lines_of(scope, header)


def primary_key(request: Request) -> str | None:
    """Return the user's primary key: the default of `HEADGATE['USER']`."""
    user = getattr(request, "user", None)
    if user is None or not user.is_authenticated or user.pk is None:
        return None
    return str(user.pk)


def route_of(request: Request, at: str = "") -> str | None:
    """Return the template of the route with its namespaces, not the URL; the same in every language."""
    found = request.resolver_match
    if found is None:
        return None
    route = found.route
    if is_language_prefix_patterns_used(getattr(request, "urlconf", None) or settings.ROOT_URLCONF)[0]:
        route = route.removeprefix(f"{get_language()}/")
    return route_named(route, found.view_name, at)


def route_named(route: str, name: str, at: str = "") -> str:
    """Return a route as limits count by it: its template, the place inside of the view if any, and the view's name."""
    return f"/{route}:{at} {name}" if at else f"/{route} {name}"


def result_of(function: Callable[..., Any], view: RequestView) -> Any:  # noqa: ANN401
    """Return the result of a function of the app, which is called once for each request."""
    assert isinstance(view, SiteView)  # noqa: S101 - made by `read_request`
    if function not in view.known:
        view.known[function] = function(view.request)
    return view.known[function]


async def result_in_loop(function: Callable[..., Any], request: Request) -> Any:  # noqa: ANN401
    """Like `result_of`, in an event loop: a function that queries the database is called in Django's thread."""
    with suppress(SynchronousOnlyOperation):
        lazy = function is primary_key and isinstance(getattr(request, "user", None), LazyObject)
        if not lazy:  # a session in a cache would block the loop, and Django would not raise
            return function(request)
    return await sync_to_async(function)(request)
