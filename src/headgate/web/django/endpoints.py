"""The views of a site that have limits, known before any request: with the routes under which requests count."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from django.urls import ResolverMatch, URLResolver, get_resolver
from django.urls.resolvers import LocalePrefixPattern
from django.views import View

from headgate.web.django.limits import has_throttles, limits_at
from headgate.web.django.request import route_named
from headgate.web.django.settings import Setup
from headgate.web.endpoint import EndpointLimit

METHODS: Final = tuple(View.http_method_names)


def endpoints_in(setup: Setup) -> Iterator[tuple[str, tuple[EndpointLimit, ...]]]:
    """Yield the route and the limits of each view, as a request to it would find them."""
    for found in _matches_below(get_resolver(), "", [], []):
        own = {each: None for method in METHODS for each in limits_at(found.func, method)}
        exempt = setup.exempt_admin and "admin" in found.app_names
        if not own and setup.default is not None and not exempt and not has_throttles(found.func):
            own = {((setup.default,), ""): None}
        yield from ((route_named(found.route, found.view_name, at), limits) for limits, at in own if limits)


def _matches_below(resolver: URLResolver, route: str, apps: list[Any], namespaces: list[Any]) -> Iterator[Any]:
    for each in resolver.url_patterns:
        written = route + ("" if isinstance(each.pattern, LocalePrefixPattern) else str(each.pattern))
        if isinstance(each, URLResolver):
            below = [*apps, each.app_name], [*namespaces, each.namespace]
            yield from _matches_below(each, written, *below)
        else:
            yield ResolverMatch(each.callback, (), {}, each.name, apps, namespaces, written)
