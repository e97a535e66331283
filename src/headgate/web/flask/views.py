"""Limits on views and blueprints: the decorators that set them, and the sum of them for an endpoint."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any, Final, TypeVar, cast

from flask import Blueprint, Flask, Response, current_app
from werkzeug.routing import Rule

from headgate.errors import HeadgateError, InvalidCall
from headgate.policy import RequestView
from headgate.policy.edges import FastPath
from headgate.web.callables import (
    LIMITED_AS,
    full_name,
    named_while_decorated,
    note_limited,
    refuse_bare,
    stands_for,
    unwrapped,
)
from headgate.web.endpoint import EndpointLimit
from headgate.web.endpoint_shortcuts import EndpointShortcuts
from headgate.web.flask.requests import LIMITED, current_request
from headgate.web.request_limits import known_method

EXTENSION: Final = "headgate"
"""The key of an app's limits: `app.extensions["headgate"]`."""
LIMITS: Final = "__headgate_limits__"
"""The attribute of a view or a blueprint that holds its limits."""
EXEMPT: Final = "__headgate_exempt__"
Marked = TypeVar("Marked", bound=Callable[..., Any] | Blueprint)


def call(function: Callable[[], Any], view: RequestView) -> Any:  # noqa: ANN401
    """Call a function of the app, which may be `async def` like its views."""
    return current_app.ensure_sync(function)()


def limited(limits: Any, *, key: Any = "ip", **rule: Any) -> Callable[[Marked], Marked]:  # noqa: ANN401
    """Limits of a view, as a decorator; or of each view of a blueprint, as `limited("10/minute")(blueprint)`.

    Any field of a policy's rule can be given by name. Functions (`limits`, `key`, `cost`, `exempt`) take no arguments.
    Several limits on one view are one decision: all are charged, or none is.
    """
    refuse_bare(limits, sys._getframe(1))
    limit = EndpointLimit(limits, {"key": key, **rule}, call)

    def decorate(target: Marked) -> Marked:
        every = (limit, *getattr(target, LIMITS, ()))
        if isinstance(target, Blueprint):
            setattr(target, LIMITS, every)
            return target
        guarded = _guarded(_checked(target), every)
        _put_into_apps(target, guarded, sys._getframe(1))
        return cast("Marked", guarded)

    return decorate


def _put_into_apps(view: Callable[..., Any], guarded: Callable[..., Any], frame: FrameType) -> None:
    """Let apps that a caller's code names call the guarded view: `limited` is above the route's decorator.

    An app with `RateLimits` would find the limits by itself; another one would serve the bare view, without a word.
    """
    wrapped = unwrapped(view)
    for app in named_while_decorated(view, frame):
        if isinstance(app, Flask):
            known = [name for name, each in app.view_functions.items() if any(each is within for within in wrapped)]
            app.view_functions.update(dict.fromkeys(known, guarded))


def exempt(target: Marked) -> Marked:
    """Exempt a view from the default limits and those of its blueprints; or each view of a blueprint."""
    setattr(target if isinstance(target, Blueprint) else _checked(target), EXEMPT, True)
    return target


def _checked(view: Any) -> Any:  # noqa: ANN401
    if isinstance(view, type | Flask) or not callable(view):
        raise InvalidCall(
            f"expected a view or a blueprint; got {view!r}. In a class of views, write decorators = [limited(...)]; "
            "for a whole app, write RateLimits(app, default=...) or a policy"
        )
    return view


def _guarded(view: Callable[..., Any], limits: tuple[EndpointLimit, ...]) -> Callable[..., Any]:
    """Wrap a view. If another decorator hides its limits from the extension, the wrapper evaluates them."""
    name, first = full_name(view), limits[0]

    @functools.wraps(view)
    def plain(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        try:
            decided = first in current_request().headgate_limits.asked  # type: ignore[attr-defined]
        except (AttributeError, RuntimeError):  # not decided by the extension, or no request
            decided = False
        answer = None if decided else _admit(limits, name)
        return view(*args, **kwargs) if answer is None else answer

    @functools.wraps(view)
    async def awaited(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        answer = _admit(limits, name)
        return await view(*args, **kwargs) if answer is None else answer

    made = awaited if inspect.iscoroutinefunction(view) else plain
    setattr(made, LIMITS, limits)
    note_limited(view, made)
    return made


def _admit(limits: tuple[EndpointLimit, ...], name: str) -> Response | None:
    """Return a refusal, or None to call the view: at once if the extension has evaluated the limits before."""
    try:
        asked = current_request()
    except RuntimeError:  # no request: a test, or a shell
        return None
    decided = getattr(asked, LIMITED, None)
    if decided is not None and limits[0] in decided.asked:
        return None
    edge = current_app.extensions.get(EXTENSION)
    if edge is None:
        raise HeadgateError(
            f"{name} has limits, and the app has none; write RateLimits(app), or limits.init_app(app) in its factory"
        )
    answer: Response | None = edge.come_to(asked, limits, name)
    return answer


class Place:
    """An endpoint, requested with one method."""

    __slots__ = ("exempt", "found", "limits", "method", "route")

    def __init__(self, route: str, method: str, limits: Iterable[EndpointLimit], exempt: bool) -> None:
        self.route = route
        """The endpoint's name, as it may have several URLs; and the app's, as apps may share a store."""
        self.method = method
        """The method of the request, as rules see it."""
        self.limits = tuple(dict.fromkeys(limits))
        self.exempt = exempt
        self.found: tuple[EndpointShortcuts[str] | None, FastPath | None] = (None, None)
        """The shortcuts of the current policy, and the fast path of this endpoint if it counts by addresses."""

    def find(self, shortcuts: EndpointShortcuts[str]) -> FastPath | None:
        """Find the fast path under another policy."""
        shortcut = shortcuts[self.limits, self.route, known_method(self.method)]
        found = shortcut if isinstance(shortcut, FastPath) and shortcut.by_address else None
        self.found = shortcuts, found  # in one step, as other threads read it
        return found


NOWHERE: Final = Place("", "", (), False)
"""The place of a request that matches no endpoint."""


def place_of(app: Flask, rule: Rule, method: str, default: EndpointLimit | None) -> Place:
    """Collect a view's own limits, then its blueprints' from the inside out up to an exemption, or else the default."""
    endpoint, view = rule.endpoint, app.view_functions.get(rule.endpoint)
    views = _views(view, _answered(view, method, rule))
    limits = [limit for each in views for limit in _limits_of(each, app)]
    exempted = any(getattr(each, EXEMPT, False) for each in views) or _is_static(rule, app)
    name = endpoint
    while "." in name and not exempted:
        name = name.rpartition(".")[0]
        limits += getattr(app.blueprints.get(name), LIMITS, ())
        exempted = getattr(app.blueprints.get(name), EXEMPT, False)
    if not limits and not exempted and default is not None:
        limits.append(default)
    if method == "OPTIONS" and getattr(rule, "provide_automatic_options", False):
        limits.clear()  # Flask itself answers such a request of a browser
    return Place(f"{endpoint} {app.name}", method, limits, exempted)


def _answered(view: Any, method: str, rule: Rule) -> str:  # noqa: ANN401
    """Return the method whose view answers, so that a HEAD request counts by the limits of GET."""
    own = hasattr(getattr(view, "view_class", None), "head")
    return "GET" if method == "HEAD" and "GET" in (rule.methods or ()) and not own else method


def _views(view: Any, method: str) -> list[Any]:  # noqa: ANN401
    """Return the functions of an endpoint: the view and, for a class, its method for the request."""
    kind = getattr(view, "view_class", None)
    return [view] if kind is None else [view, kind.dispatch_request, getattr(kind, method.lower(), None)]


def _limits_of(view: Any, app: Flask) -> tuple[EndpointLimit, ...]:  # noqa: ANN401
    """Return a view's own limits; also those set by a decorator above the route's, whose result Flask never gets."""
    whose, every = getattr(view, LIMITED_AS, (None, ()))
    for made in every if whose is view else ():
        if stands_for(made, view) and made not in app.view_functions.values():
            return _limits_of(made, app)
    limits: tuple[EndpointLimit, ...] = getattr(view, LIMITS, ())
    return limits


def _is_static(rule: Rule, app: Flask) -> bool:
    """Return whether Flask serves static files there; they are exempt, as a page needs many of them."""
    owner, _, name = rule.endpoint.rpartition(".")
    home = app.blueprints.get(owner) if owner else app
    return name == "static" and home is not None and home.has_static_folder
