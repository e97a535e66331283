"""aiohttp's routes: those of an app and of the apps within it, and the way to put a guard before a handler."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Awaitable, Callable, Iterator
from typing import Any
from urllib.parse import unquote

from aiohttp import web

from headgate.errors import HeadgateError
from headgate.web.mounts import below
from headgate.web.unmatched_rules import Route, read_route

Guard = Callable[[web.Request], Awaitable[web.StreamResponse]]


def routes_of(app: web.Application, apart: Callable[[web.Application], bool]) -> Iterator[web.AbstractRoute]:
    """Yield the routes of an app, and of the apps within it for which `apart` is False."""
    for resource in app.router.resources():
        within = resource.get_info().get("app")
        if within is None:
            yield from resource
        elif not apart(within):
            yield from routes_of(within, apart)


def prefix_of(app: web.Application, around: web.Application) -> str | None:
    """Return the path of an app within another one, or None."""
    for resource in around.router.resources():
        info = resource.get_info()
        within = info.get("app")
        if within is app:
            return unquote(info.get("prefix", ""))
        found = None if within is None else prefix_of(app, within)
        if found is not None:
            return found
    return None


def routes_in(app: web.Application, root: str) -> Iterator[Route]:
    """Yield every route of an app at this path within another, for comparison with the paths of rules."""
    for resource in app.router.resources():
        info = resource.get_info()
        within = info.get("app")
        if within is not None:
            yield from routes_in(within, root)
        elif "path" in info or "formatter" in info:
            template = below(unquote(resource.canonical), root)
            yield read_route(template, _methods(resource), r"\{", r"\{" if _spans(info) else r"(?!)")
        else:  # static files
            yield read_route(f"{below(unquote(resource.canonical), root)}/**", None, r"\{", r"^\*\*$")


def _methods(resource: web.AbstractResource) -> frozenset[str] | None:
    methods = {each.method for each in resource}
    if "*" in methods:
        return None
    return frozenset(methods | {"WEBSOCKET", "MESSAGE"} if "GET" in methods else methods)  # a handshake is a GET


def _spans(info: Any) -> bool:  # noqa: ANN401
    """Return whether a name may match several segments, as it has a regular expression of its own."""
    pattern = info["pattern"].pattern if "pattern" in info else ""
    return pattern.count("(?P<") > pattern.count(">[^{}/]+)")


def put_in_front(route: web.AbstractRoute, guard: Guard) -> None:
    """Replace a route's handler by the guard, which keeps the handler's name; a class stays a class."""
    handler: Any = route.handler
    shown: Any = _facade(handler, guard) if inspect.isclass(handler) else functools.wraps(handler)(guard)
    route._handler = shown
    if route.handler is not shown:
        raise HeadgateError("this version of aiohttp is not supported: its routes keep their handlers elsewhere")


class _Facade:
    """The first base class, so that a view's own `__init_subclass__` does not run for the facade."""

    def __init_subclass__(cls) -> None:
        """Do nothing."""


def _facade(view: type, guard: Guard) -> type:
    """Return a subclass of the view that calls the guard."""
    names = {name: getattr(view, name) for name in ("__module__", "__qualname__", "__doc__")}
    names["__new__"] = lambda cls, request: guard(request)
    return types.new_class(view.__name__, (_Facade, view), {}, lambda body: body.update(names))
