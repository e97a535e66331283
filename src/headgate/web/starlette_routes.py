"""Starlette's and FastAPI's routes: the place of an endpoint by its template, not the URL; and all routes of an app."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any

from starlette.applications import Starlette
from starlette.routing import Host, Mount, Router, WebSocketRoute

from headgate.web.asgi_requests import Scope
from headgate.web.callables import full_name, named_while_decorated, unwrapped
from headgate.web.responder import MOST_FAST_PATHS
from headgate.web.unmatched_rules import Route, read_route


class Place:
    """The place where a limit counts: the template of an endpoint's path, the endpoint's name, and both."""

    __slots__ = ("_of", "name", "route", "template")

    def __init__(self, template: str, name: str, of: Any) -> None:  # noqa: ANN401
        self.template, self.name, self.route = template, name, f"{template} {name}"
        self._of = of
        """The route, kept alive so that no other object gets its `id`."""


Known = dict[int, Place]
"""The places of one endpoint, by the `id` of its route: routes cannot be hashed."""


def place_of(scope: Scope, endpoint: Any = None, known: Known | None = None) -> Place:  # noqa: ANN401
    """Return the place of a request's endpoint, or of the given one."""
    route = as_included(scope.get("route"), scope)
    place = known.get(id(route)) if known is not None and "app_root_path" not in scope else None
    if place is None:
        name = full_name(scope.get("endpoint") if endpoint is None else endpoint)
        alone = "app_root_path" not in scope and getattr(route, "endpoint", None) is not None
        place = Place((getattr(route, "path", None) or "/") if alone else _template_of(scope, route), name, route)
        if alone and known is not None and len(known) < MOST_FAST_PATHS:
            known[id(route)] = place
    return place


def _template_of(scope: Scope, route: Any) -> str:  # noqa: ANN401
    """Return the template of an endpoint's path with those of its mounts; also for Starlette before 1.6."""
    path, root = scope["path"], scope.get("app_root_path", scope.get("root_path", ""))
    path = path.removeprefix(root) if path.startswith(f"{root}/") else path
    found = _template_below(getattr(scope.get("router"), "routes", ()), path, scope.get("endpoint"))
    return found if found is not None else getattr(route, "path", None) or "/"


def as_included(route: Any, scope: Scope) -> Any:  # noqa: ANN401
    """Return a route with its routers' additions: FastAPI has another for each place that includes it."""
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
    """Yield routes, and those of routers that FastAPI has included, at their whole paths."""
    for route in routes:
        if hasattr(route, "effective_route_contexts"):
            yield from (each.starlette_route or each for each in route.effective_route_contexts())
        else:
            yield route


def routes_in(app: Any) -> Iterator[Route]:  # noqa: ANN401
    """Yield every route of an app, for comparison with the paths of rules."""
    return _routes_below(app.routes, "")


def _routes_below(routes: Iterable[Any], prefix: str) -> Iterator[Route]:
    for each in flat(routes):
        path = prefix + str(getattr(each, "path", ""))
        if isinstance(each, Mount | Host) and each.routes:
            yield from _routes_below(each.routes, path)
        elif hasattr(each, "endpoint"):
            sockets = isinstance(each, WebSocketRoute)
            methods = ("WEBSOCKET", "MESSAGE") if sockets else getattr(each, "methods", None)
            yield read_route(path, methods, r"\{", r"\{[^{}]*:path\}")
        else:  # static files, an app without a list of routes, or an unknown kind of route
            yield read_route(f"{path}/**", None, r"\{", r"^\*\*$|:path\}")


def route_named(template: str, name: str, times: int) -> str:
    """Return the route by which the limits of an endpoint count that decide first, or later, on the same request."""
    return f"{template} {name}" if times == 1 else f"{template}/{times} {name} {times}"


def placed(routes: Iterable[Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the template and the route of every endpoint, also below mounts."""
    for route in flat(routes):
        path = prefix + str(getattr(route, "path", ""))
        if isinstance(route, Mount | Host):
            yield from placed(route.routes or (), path)
        elif hasattr(route, "endpoint"):
            yield path or "/", route


def endpoints_of(routes: Iterable[Any]) -> Iterator[Any]:
    """Yield the routes of every endpoint, also below mounts."""
    for route in flat(routes):
        if isinstance(route, Mount | Host):
            yield from endpoints_of(route.routes or ())
        elif hasattr(route, "endpoint"):
            yield getattr(route, "original_route", route)


def route_before(endpoint: Any, frame: FrameType) -> str | None:  # noqa: ANN401
    """Return the path of a route that calls this endpoint already, of an app or a router that a caller's code names."""
    wrapped = unwrapped(endpoint)
    for each in named_while_decorated(endpoint, frame):
        if isinstance(each, (Starlette, Router)):
            for route in each.routes:
                if any(getattr(route, "endpoint", None) is within for within in wrapped):
                    return getattr(route, "path", "")
    return None
