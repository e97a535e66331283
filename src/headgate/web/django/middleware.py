"""The middleware: it evaluates the policy when a request arrives, and a view's limits when the view is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http.response import HttpResponseBase

from headgate.steps import run, running_loop
from headgate.web import asgi_sending
from headgate.web.django.request import Request, View
from headgate.web.django.site import rate_limits
from headgate.web.django.site_limits import ON_REQUEST, SiteLimits
from headgate.web.request_decision import RequestDecision
from headgate.web.responder import RAISED


class RateLimitMiddleware:
    """One class for WSGI and ASGI; under ASGI, stores are awaited without a thread."""

    sync_capable: ClassVar[bool] = True
    async_capable: ClassVar[bool] = True

    def __init__(self, get_response: Callable[[Request], Any]) -> None:
        self.get_response = get_response
        self._awaits: bool = iscoroutinefunction(get_response)
        self.process_view: Callable[..., Any] = self._at_view
        if self._awaits:
            markcoroutinefunction(self)
            self.process_view = self._at_view_awaiting
        rate_limits.opened.limits(self._awaits)  # raises for mistakes in the settings when the site starts

    def __call__(self, request: Request) -> Any:  # noqa: ANN401
        """Handle one request; under ASGI, return an awaitable."""
        return self._pass_awaiting(request) if self._awaits else self._pass(request)

    def _begin(self, request: Request) -> SiteLimits | None:
        """Return the limits of a new request, or None if limits are disabled."""
        opened = rate_limits.opened
        setup = opened.setup
        seen = request.rate_limit = RequestDecision()
        if not setup.enabled:
            seen.only = ()
            return None
        limits = opened.limits(self._awaits)()
        if limits.runtime.looks:
            view = limits.runtime.look(request)
            limits.view = view if setup.policy is not None else None  # middleware may add to it before the view
        setattr(request, ON_REQUEST, limits)
        seen.limits = limits
        return limits

    def _pass(self, request: Request) -> Any:  # noqa: ANN401
        limits = self._begin(request)
        if limits is None:
            return self.get_response(request)
        if limits.setup.policy is not None:
            refusal = limits.enter(request)
            if refusal is not None:
                return limits.respond(request, refusal)
        try:
            response = self.get_response(request)
            if limits.follows:
                run(limits.after(response.status_code, response.headers.get))
            if limits.holds_permits and response.streaming:
                limits.end_with(response)
            return limits.tell(response)
        finally:
            if limits.follows and not limits.streams:  # a permit is held, or there was no response
                run(limits.end())

    async def _pass_awaiting(self, request: Request) -> Any:  # noqa: ANN401
        limits = self._begin(request)
        if limits is None:
            return await self.get_response(request)
        if limits.setup.policy is not None:
            refusal = await limits.enter_awaiting(request)
            if refusal is not None:
                return await limits.respond_awaiting(request, refusal)
        try:
            response = await self.get_response(request)
            if limits.follows:
                await asgi_sending.finish(limits, limits.after(response.status_code, response.headers.get))
            if response.streaming and (limits.holds_permits or limits.runtime.awaits):  # it may settle at its end
                limits.end_with(response, running_loop())
            return limits.tell(response)
        finally:
            if limits.follows and not limits.streams:
                await asgi_sending.finish(limits, limits.end())

    def process_exception(self, request: Request, exception: Exception) -> HttpResponseBase | None:
        """Answer an error of a limiter or a budget of the app's own in a view like a refusal of the middleware."""
        limits: SiteLimits | None = getattr(request, ON_REQUEST, None)
        if limits is None or not isinstance(exception, RAISED):
            return None
        return limits.respond(request, limits.refusal_for(request, exception))

    def _at_view(self, request: Request, view: View, args: Any, kwargs: Any) -> HttpResponseBase | None:  # noqa: ANN401
        decided: SiteLimits | None = getattr(request, ON_REQUEST, None)
        if decided is None:
            return None
        for limits, at in decided.limits_at(request, view):
            refusal = decided.enter(request, limits, at) if limits else None
            if refusal is not None:
                return decided.respond(request, refusal)
        return None

    async def _at_view_awaiting(self, request: Request, view: View, args: Any, kwargs: Any) -> HttpResponseBase | None:  # noqa: ANN401
        decided: SiteLimits | None = getattr(request, ON_REQUEST, None)
        if decided is None:
            return None
        for limits, at in decided.limits_at(request, view):
            refusal = await decided.enter_awaiting(request, limits, at) if limits else None
            if refusal is not None:
                return await decided.respond_awaiting(request, refusal)
        return None
