"""Limits at aiohttp's handlers: marks, which `RateLimits` reads when the app starts."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Final, TypeVar

from aiohttp import web

from headgate.errors import InvalidCall
from headgate.web.callables import mark_of
from headgate.web.endpoint import EndpointLimit

LIMITS: Final = "__headgate_limits__"
"""The attribute of a handler that holds its limits; an empty tuple if it is exempt and has none."""
EXEMPT: Final = "__headgate_exempt__"
Marked = TypeVar("Marked", bound=Callable[..., Any])
Place = tuple[str, tuple[EndpointLimit, ...]]
"""The place where limits count, and the limits."""


def limited(limits: Any, *, key: Any = "ip", **rule: Any) -> Callable[[Marked], Marked]:  # noqa: ANN401
    """Limit a handler: a function, a method, a `web.View` or one of its methods.

    Any field of a policy's rule can be given by name. Functions (`limits`, `key`, `cost`, `exempt`) take the request.
    Several limits on one handler are one decision: all are charged, or none. They need `RateLimits(app)`.
    """
    limit = EndpointLimit(limits, {"key": key, **rule})

    def decorate(handler: Marked) -> Marked:
        if inspect.isclass(handler) and not issubclass(handler, web.View):
            raise InvalidCall(f"expected a handler or a web.View; got {handler!r}")
        return _marked(handler, (limit, *(mark_of(handler, LIMITS) or ())))

    return decorate


def exempt(handler: Marked) -> Marked:
    """Exempt a handler from the default limits, or a method of a view from those of its class; its own limits stay."""
    marked = _marked(handler, mark_of(handler, LIMITS) or ())
    setattr(marked, EXEMPT, True)
    return marked


def _marked(handler: Marked, limits: tuple[EndpointLimit, ...]) -> Marked:
    """Mark a handler with its limits; a bound method is wrapped, as a mark on it would be its class's."""
    target: Any = functools.partial(handler) if inspect.ismethod(handler) else handler
    setattr(target, LIMITS, limits)
    marked: Marked = target
    return marked


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
