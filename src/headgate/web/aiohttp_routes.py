"""aiohttp's routes: those of an app and of the apps within it, and how something is put in front of a handler."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Awaitable, Callable, Iterator
from typing import Any
from urllib.parse import unquote

from aiohttp import web

from headgate.errors import HeadgateError
from headgate.policy.path import below
from headgate.web.unreached import Route, read_route

Guard = Callable[[web.Request], Awaitable[web.StreamResponse]]


def routes_of(app: web.Application, apart: Callable[[web.Application], bool]) -> Iterator[web.AbstractRoute]:
    """The routes of an app, and of the apps within it but for those that are apart."""
    for resource in app.router.resources():
        within = resource.get_info().get("app")
        if within is None:
            yield from resource
        elif not apart(within):
            yield from routes_of(within, apart)


def prefix_of(app: web.Application, around: web.Application) -> str | None:
    """The path at which an app is within another one; None where it is not."""
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
    """Every route of an app that is at this path within another, for comparison with the paths of rules."""
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
    """Whether a name may stand for several segments: it has a regular expression of its own."""
    pattern = info["pattern"].pattern if "pattern" in info else ""
    return pattern.count("(?P<") > pattern.count(">[^{}/]+)")


def put_in_front(route: web.AbstractRoute, guard: Guard) -> None:
    """Call the guard where the route's handler was called; it looks as the handler does, and a class stays a class."""
    handler: Any = route.handler
    shown: Any = _facade(handler, guard) if inspect.isclass(handler) else functools.wraps(handler)(guard)
    route._handler = shown
    if route.handler is not shown:
        raise HeadgateError("this version of aiohttp is not supported: its routes keep their handlers elsewhere")


class _Facade:
    """Goes before a view's class, so that nothing which that does about its subclasses is done about this one."""

    def __init_subclass__(cls) -> None:
        """Nobody is told."""


def _facade(view: type, guard: Guard) -> type:
    """A view as others see it, that is the guard when it is called."""
    names = {name: getattr(view, name) for name in ("__module__", "__qualname__", "__doc__")}
    names["__new__"] = lambda cls, request: guard(request)
    return types.new_class(view.__name__, (_Facade, view), {}, lambda body: body.update(names))
