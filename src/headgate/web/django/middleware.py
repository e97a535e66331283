"""The middleware: the policy is asked when a request comes, the limits of its view when that is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http.response import HttpResponseBase

from headgate.errors import RateLimited
from headgate.policy.steps import run
from headgate.web import asgi
from headgate.web.django.request import Request, View
from headgate.web.django.site import rate_limits
from headgate.web.django.visit import VISIT, Visit


class RateLimitMiddleware:
    """One class for WSGI and ASGI: under ASGI a store that has to be waited for is awaited, without a thread."""

    sync_capable: ClassVar[bool] = True
    async_capable: ClassVar[bool] = True

    def __init__(self, get_response: Callable[[Request], Any]) -> None:
        self.get_response = get_response
        self._awaits: bool = iscoroutinefunction(get_response)
        self.process_view: Callable[..., Any] = self._at_view
        if self._awaits:
            markcoroutinefunction(self)
            self.process_view = self._at_view_awaiting
        rate_limits.runtime(self._awaits)  # what is wrong with the settings is told when the site starts

    def __call__(self, request: Request) -> Any:  # noqa: ANN401
        """One request; something to await under ASGI."""
        return self._pass_awaiting(request) if self._awaits else self._pass(request)

    def _begin(self, request: Request) -> Visit | None:
        """None where limits are switched off."""
        opened = rate_limits.opened
        setup = opened.setup
        if not setup.enabled:
            return None
        runtime = opened.runtime(self._awaits)
        if runtime.looks:
            runtime.look(request)
        visit = Visit(setup, runtime)
        if self._awaits:
            visit.awaits = runtime.awaits
        setattr(request, VISIT, visit)
        return visit

    def _pass(self, request: Request) -> Any:  # noqa: ANN401
        visit = self._begin(request)
        if visit is None:
            return self.get_response(request)
        if visit.fronted:
            no = visit.enter(request)
            if no is not None:
                return visit.respond(request, no)
        request_limits = visit.request_limits
        try:
            response = self.get_response(request)
            if request_limits.follows:
                run(request_limits.after(response.status_code, response.headers.get))
            if request_limits.holds_permits and response.streaming:
                visit.end_with(response)
            return visit.tell(response)
        finally:
            if request_limits.follows and not visit.streams:  # nothing more to do, unless a permit is held
                run(request_limits.end())

    async def _pass_awaiting(self, request: Request) -> Any:  # noqa: ANN401
        visit = self._begin(request)
        if visit is None:
            return await self.get_response(request)
        if visit.fronted:
            no = await visit.enter_awaiting(request)
            if no is not None:
                return await visit.respond_awaiting(request, no)
        request_limits = visit.request_limits
        try:
            response = await self.get_response(request)
            if request_limits.follows:
                await asgi.finish(request_limits, request_limits.after(response.status_code, response.headers.get))
            if request_limits.holds_permits and response.streaming:
                visit.end_with(response)
            return visit.tell(response)
        finally:
            if request_limits.follows and not visit.streams:
                await asgi.finish(request_limits, request_limits.end())

    def process_exception(self, request: Request, exception: Exception) -> HttpResponseBase | None:
        """A limiter of the app's own has refused in a view: a refusal as one of the middleware's."""
        visit: Visit | None = getattr(request, VISIT, None)
        if visit is None or not isinstance(exception, RateLimited):
            return None
        return visit.respond(request, visit.refuse_by(request, exception))

    def _at_view(self, request: Request, view: View, args: Any, kwargs: Any) -> HttpResponseBase | None:  # noqa: ANN401
        visit: Visit | None = getattr(request, VISIT, None)
        if visit is None:
            return None
        for limits, at in visit.limits_of(request, view):
            no = visit.enter(request, limits, at) if limits else None
            if no is not None:
                return visit.respond(request, no)
        return None

    async def _at_view_awaiting(self, request: Request, view: View, args: Any, kwargs: Any) -> HttpResponseBase | None:  # noqa: ANN401
        visit: Visit | None = getattr(request, VISIT, None)
        if visit is None:
            return None
        for limits, at in visit.limits_of(request, view):
            no = await visit.enter_awaiting(request, limits, at) if limits else None
            if no is not None:
                return await visit.respond_awaiting(request, no)
        return None
