"""Limits at aiohttp's handlers: marks, which `RateLimits` reads when the app starts.

A marked handler also looks for its limits itself where `RateLimits` has not put them in front of it: in an app without
`RateLimits`, below a decorator that loses the mark, or called by another handler.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import Any, Final, Protocol, TypeVar

from aiohttp import web

from headgate.errors import HeadgateError, InvalidCall
from headgate.web.callables import (
    endpoint_within,
    full_name,
    mark_of,
    name_after,
    named_while_decorated,
    note_within,
    refuse_bare,
    unwrapped,
    without_partials,
)
from headgate.web.endpoint import EndpointLimit

LIMITS: Final = "__headgate_limits__"
"""The attribute of a handler that holds its limits; an empty tuple if it is exempt and has none."""
EXEMPT: Final = "__headgate_exempt__"
Marked = TypeVar("Marked", bound=Callable[..., Any])
Place = tuple[str, tuple[EndpointLimit, ...]]
"""The place where limits count, or the name of a handler, and its limits."""
Call = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Owner(Protocol):
    """The `RateLimits` of an app."""

    def _enter(self, request: web.Request, handler: Place, call: Call) -> Awaitable[web.StreamResponse]:
        """Decide by the limits of a handler, unless that was done in front of it; then call it."""


OWNER: Final[web.AppKey[Owner]] = web.AppKey("headgate", Owner)
"""The key of an app's limits."""


def limited(limits: Any, *, key: Any = "ip", **rule: Any) -> Callable[[Marked], Marked]:  # noqa: ANN401
    """Limit a handler: a function, a method, a `web.View` or one of its methods.

    Any field of a policy's rule can be given by name. Functions (`limits`, `key`, `cost`, `exempt`) take the request.
    Several limits on one handler are one decision: all are charged, or none. They need `RateLimits(app)`.
    """
    refuse_bare(limits, sys._getframe(1))
    limit = EndpointLimit(limits, {"key": key, **rule})

    def decorate(handler: Marked) -> Marked:
        if inspect.isclass(handler) and not issubclass(handler, web.View):
            raise InvalidCall(f"expected a handler or a web.View; got {handler!r}")
        marked: Marked = _marked(handler, (limit, *(mark_of(handler, LIMITS) or ())))
        _put_into_tables(handler, marked, sys._getframe(1))
        return marked

    return decorate


def exempt(handler: Marked) -> Marked:
    """Exempt a handler from the default limits, or a method of a view from those of its class; its own limits stay."""
    target: Any = functools.partial(handler) if inspect.ismethod(handler) else handler
    setattr(target, LIMITS, mark_of(handler, LIMITS) or ())
    setattr(target, EXEMPT, True)
    marked: Marked = target
    return marked


def _marked(handler: Any, limits: tuple[EndpointLimit, ...]) -> Any:  # noqa: ANN401
    """Return a handler with its limits. The given one is marked too, since a route may have it already."""
    if not inspect.ismethod(handler):  # a mark on a bound method would be its class's
        setattr(handler, LIMITS, limits)
    if inspect.isclass(handler):
        return _marked_view(handler, limits)
    inner = endpoint_within(handler)

    async def limited_handler(*args: Any) -> web.StreamResponse:  # noqa: ANN401
        # The last argument is the request; methods of views have the view only.
        request: web.Request = getattr(args[-1], "request", args[-1])

        async def call(_: web.Request) -> web.StreamResponse:
            answer = inner(*args)
            response: web.StreamResponse = await answer if inspect.isawaitable(answer) else answer
            return response

        return await _owner_of(request, inner)._enter(request, (full_name(inner), limits), call)

    functools.update_wrapper(limited_handler, inner)
    name_after(without_partials(inner), limited_handler)
    setattr(limited_handler, LIMITS, limits)
    note_within(limited_handler, inner)
    return limited_handler


def _put_into_tables(handler: Any, marked: Any, frame: FrameType) -> None:  # noqa: ANN401
    """Let the tables of routes that a caller's code names call the limited handler: `@limited` is above the route's."""
    wrapped = unwrapped(handler)
    for each in named_while_decorated(handler, frame):
        if isinstance(each, web.RouteTableDef):
            for route in each:
                if any(getattr(route, "handler", None) is within for within in wrapped):
                    object.__setattr__(route, "handler", marked)  # frozen, and in the table for good


def _marked_view(view: Any, limits: tuple[EndpointLimit, ...]) -> Any:  # noqa: ANN401
    """Return a view whose instances look for the limits of the class."""
    answer = endpoint_within(view.__await__)

    def __await__(self: web.View) -> Any:  # noqa: ANN401, N807
        async def call(_: web.Request) -> web.StreamResponse:
            response: web.StreamResponse = await _Awaited(answer(self))
            return response

        return _owner_of(self.request, view)._enter(self.request, (full_name(view), limits), call).__await__()

    note_within(__await__, answer)
    view.__await__ = __await__
    return view


class _Awaited:
    """An iterator as something to await."""

    def __init__(self, steps: Any) -> None:  # noqa: ANN401
        self._steps = steps

    def __await__(self) -> Any:  # noqa: ANN401
        return self._steps


def is_marked(handler: Any, method: str, limits: tuple[EndpointLimit, ...]) -> bool:  # noqa: ANN401
    """Return whether these are limits of a route's handler, or of the method of its view."""
    within = getattr(handler, method.lower(), None) if inspect.isclass(handler) else None
    return any(limits[0] in (mark_of(each, LIMITS) or ()) for each in (handler, within))


def _owner_of(request: web.Request, handler: Any) -> Owner:  # noqa: ANN401
    owner = request.config_dict.get(OWNER)
    if owner is None:
        raise HeadgateError(
            f"{full_name(handler)} has limits, and its app has none; write RateLimits(app) where the app is created"
        )
    return owner


def places_of(handler: Any, place: str, method: str, default: tuple[EndpointLimit, ...] | None) -> list[Place]:  # noqa: ANN401
    """Return the limits of a handler or a view's class, and of the view's method; the default if there are none."""
    own, its, name = mark_of(handler, LIMITS), None, method.lower()
    answers = getattr(handler, name, None) if inspect.isclass(handler) else None
    if answers is not None:
        its = getattr(answers, LIMITS, None)
    if own is None and its is None:
        own = default
    elif getattr(answers, EXEMPT, False):
        own = None
    places = ((place, own), (f"{place}.{name}", its))
    return [(each, limits) for each, limits in places if limits]
