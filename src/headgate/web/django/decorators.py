"""Limits as decorators of views: functions, classes and their methods, sync and async.

The middleware reads the limits from the view and evaluates them before the view and its other decorators are called. If
another decorator hides them, they are evaluated when the view is called.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any, Final, TypeVar

from asgiref.sync import iscoroutinefunction, markcoroutinefunction

from headgate.errors import HeadgateError, InvalidCall
from headgate.web.callables import refuse_bare
from headgate.web.django.limits import LIMITS, ViewLimit
from headgate.web.django.request import Request, View
from headgate.web.django.site import rate_limits
from headgate.web.django.site_limits import ON_REQUEST, SiteLimits
from headgate.wording import shown

ViewT = TypeVar("ViewT", bound=Callable[..., Any])
DECORATED: Final[list[ViewLimit]] = []
"""Every limit set on a view, for the system checks."""


def limited(limits: Any, *, key: Any = "ip", **rule: Any) -> Callable[[ViewT], ViewT]:  # noqa: ANN401
    """Limit a view. Any field of a policy's rule can be given by name.

    Several limits on one view are one decision: all are charged, or none is.
    """
    refuse_bare(limits, sys._getframe(1))
    limit = ViewLimit(limits, {"key": key, **rule})
    DECORATED.append(limit)

    def guarded(view: View) -> Any:  # noqa: ANN401
        every = (limit, *getattr(view, LIMITS, ()))

        @functools.wraps(view)
        def wrapper(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            decided = getattr(args[0], ON_REQUEST, None)
            if decided is not None and limit in decided.asked:  # by the middleware
                return view(*args, **kwargs)
            request = _request_in(args)
            decided = _limits_of(request)
            if decided is None or limit in decided.asked:
                return view(*args, **kwargs)
            call = functools.partial(view, *args, **kwargs)
            return (_enter_awaiting if _is_async(view, args) else _enter)(decided, request, every, call)

        return _marked(wrapper, view, every)

    return functools.partial(_decorate, guarded)


def exempt(view: ViewT) -> ViewT:
    """Exempt a view from the default limits."""

    def unguarded(view: View) -> Any:  # noqa: ANN401
        @functools.wraps(view)
        def wrapper(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            return view(*args, **kwargs)

        return _marked(wrapper, view, getattr(view, LIMITS, ()))

    return _decorate(unguarded, view)


def _decorate(decorator: Callable[[Any], Any], view: ViewT) -> ViewT:
    """Decorate a function, or the `dispatch` method of a class."""
    decorated: Any = view
    if not inspect.isclass(view):
        decorated = decorator(view)
    elif hasattr(view, "as_view"):
        decorated.dispatch = decorator(decorated.dispatch)  # `as_view` copies the attributes of `dispatch`
    else:
        raise InvalidCall(f"expected a view: a function, or a class with as_view; got {shown(view)}")
    result: ViewT = decorated
    return result


def _marked(wrapper: Any, view: View, limits: tuple[ViewLimit, ...]) -> Any:  # noqa: ANN401
    setattr(wrapper, LIMITS, limits)
    return markcoroutinefunction(wrapper) if iscoroutinefunction(view) else wrapper


def _request_in(args: tuple[Any, ...]) -> Any:  # noqa: ANN401
    """Return Django's own request from the arguments of a view or a method; REST framework wraps it in another."""
    request = next(each for each in args[:2] if hasattr(each, "META"))
    return getattr(request, "_request", request)


def _limits_of(request: Request) -> SiteLimits | None:
    decided: SiteLimits | None = getattr(request, ON_REQUEST, None)
    if decided is None and rate_limits.setup.enabled:
        raise HeadgateError(
            "limits at views need 'headgate.web.django.RateLimitMiddleware' in MIDDLEWARE; in a test that calls a view "
            "without it, write headgate.web.django.testing.override(enabled=False)"
        )
    return decided


def _is_async(view: View, args: tuple[Any, ...]) -> bool:
    """Return whether a view has to be awaited; the `dispatch` of an async class is a plain function."""
    bound = getattr(getattr(view, "func", None), "__self__", None)  # by Django's `method_decorator`
    return iscoroutinefunction(view) or any(getattr(each, "view_is_async", False) for each in (bound, *args[:1]))


def _enter(decided: SiteLimits, request: Request, limits: tuple[ViewLimit, ...], call: functools.partial[Any]) -> Any:  # noqa: ANN401
    refusal = decided.enter(request, limits, _name(call.func))
    return call() if refusal is None else decided.respond(request, refusal)


async def _enter_awaiting(
    decided: SiteLimits, request: Request, limits: tuple[ViewLimit, ...], call: functools.partial[Any]
) -> Any:  # noqa: ANN401
    refusal = await decided.enter_awaiting(request, limits, _name(call.func))
    return await call() if refusal is None else await decided.respond_awaiting(request, refusal)


def _name(view: View) -> str:
    """Return a name that separates the counts of a view from those of a view it calls, on the same route."""
    return f"{getattr(view, '__qualname__', type(view).__qualname__)} {view.__module__}"
