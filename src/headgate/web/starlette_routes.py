"""Starlette's and FastAPI's routes: the template of an endpoint, and every endpoint of an app."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from starlette.routing import Host, Mount

from headgate.web import asgi


def template_of(scope: asgi.Scope) -> str:
    """The template of the endpoint's path, with those of the mounts around it; never the URL."""
    route = as_included(scope.get("route"), scope)
    if "app_root_path" in scope or getattr(route, "endpoint", None) is None:  # below a mount, or a Starlette before 1.6
        path, root = scope["path"], scope.get("app_root_path", scope.get("root_path", ""))
        path = path.removeprefix(root) if path.startswith(f"{root}/") else path
        found = _template_below(getattr(scope.get("router"), "routes", ()), path, scope.get("endpoint"))
        if found is not None:
            return found
    return getattr(route, "path", None) or "/"


def as_included(route: Any, scope: asgi.Scope) -> Any:  # noqa: ANN401
    """A route with what the routers around it add: FastAPI has another for each place that it is included in."""
    included = scope.get("fastapi", {}).get("effective_route_context")
    return included if included is not None and included.original_route is route else route


def _template_below(routes: Iterable[Any], path: str, endpoint: Any) -> str | None:  # noqa: ANN401
    for route in flat(routes):
        below = path if isinstance(route, Host) else None
        if isinstance(route, Mount):
            found = route.path_regex.match(path)
            below = found and "/" + found["path"]
        if below is not None:
            template = _template_below(route.routes or (), below, endpoint)
            if template is not None:
                return str(getattr(route, "path", "")) + template
        elif getattr(route, "endpoint", None) is endpoint and route.path_regex.match(path):
            return str(route.path)
    return None


def flat(routes: Iterable[Any]) -> Iterator[Any]:
    """Routes, where FastAPI has included routers too: with those of the routers, at their whole paths."""
    for route in routes:
        if hasattr(route, "effective_route_contexts"):
            yield from (each.starlette_route or each for each in route.effective_route_contexts())
        else:
            yield route


def endpoints_of(routes: Iterable[Any]) -> Iterator[Any]:
    """The routes of every endpoint, also below mounts."""
    for route in flat(routes):
        if isinstance(route, Mount | Host):
            yield from endpoints_of(route.routes or ())
        elif hasattr(route, "endpoint"):
            yield getattr(route, "original_route", route)
