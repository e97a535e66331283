"""The limits of one request on its way through the site, and what a refusal is in Django."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Final

from asgiref.sync import async_to_sync, iscoroutinefunction, sync_to_async
from django.http import HttpResponse
from django.http.response import HttpResponseBase

from headgate.engine import Decision
from headgate.errors import HeadgateError, RateLimited
from headgate.policy.steps import Steps, run, run_awaiting
from headgate.web.django.limits import ViewLimit, has_throttles, limits_at
from headgate.web.django.request import Request, View, route_of
from headgate.web.django.settings import Setup
from headgate.web.request_limits import OF_A_BODY, RequestLimits
from headgate.web.responder import Answer

ON_REQUEST: Final = "_headgate"
"""Where the middleware, decorators and throttles find the limits on the request."""
Limits = tuple[ViewLimit, ...]


class RateLimitExceeded(HeadgateError):
    """A refusal, for `REFUSAL_VIEW`.

    `response` is what would be sent, `retry_after` the whole seconds to wait, if they are told.
    """

    def __init__(self, response: HttpResponse, decision: Decision | None, hides: bool, detail: str = "") -> None:
        super().__init__("rate limited")
        self.detail = detail or response.reason_phrase
        self.response = response
        self.decision = decision
        self.retry_after = int(response["Retry-After"]) if "Retry-After" in response else None
        self.hides = hides
        """It looks like any other answer: the app is not to be asked."""

    def give_fields(self, response: HttpResponseBase) -> None:
        """Say the same in the header fields of another response."""
        for name, value in self.response.items():
            if name.lower() not in OF_A_BODY:
                response.setdefault(name, value)


class SiteLimits(RequestLimits[str]):
    """One request. `enter` is for threads, `enter_awaiting` for event loops; both give a refusal, or None."""

    setup: ClassVar[Setup]
    refusal: RateLimitExceeded | None = None
    settles = True
    """There is somebody who counts what the response says."""

    def limits_at(self, request: Request, view: View) -> Iterable[tuple[Limits, str]]:
        """The limits of a view and those of its method, or the default ones where it has none of its own."""
        if self.asked:  # asked already: threads that share a test client load its middleware twice
            return ()
        own = limits_at(view, request.method)
        default = self.setup.default
        if own or default is None or has_throttles(view):
            return own
        if self.setup.exempt_admin and "admin" in request.resolver_match.app_names:
            return ()
        return [((default,), "")]

    def enter(self, request: Request, limits: Limits | None = None, at: str = "") -> RateLimitExceeded | None:
        """Decide by the policy; or, at a view, by its limits; `at` says where in it, if not in front."""
        admitted = self._ask(request, limits, at)
        if not isinstance(admitted, bool):
            admitted = self._run(admitted)
        return None if admitted else self._refusal(request)

    async def enter_awaiting(
        self, request: Request, limits: Limits | None = None, at: str = ""
    ) -> RateLimitExceeded | None:
        """The same in an event loop."""
        admitted = self._ask(request, limits, at)
        if not isinstance(admitted, bool):
            admitted = await run_awaiting(admitted)
        return None if admitted else self._refusal(request)

    def _ask(self, request: Request, limits: Limits | None, at: str) -> bool | Steps[bool]:
        where = request.path_info if limits is None else route_of(request, at) or ""
        return self.admit(request, request.method, where, request.META.get("REMOTE_ADDR"), limits)

    def _run(self, steps: Steps[Any]) -> Any:  # noqa: ANN401
        """Run steps in a thread, which may be one of Django's for a view that is not async."""
        return async_to_sync(run_awaiting)(steps) if self.runtime.awaits else run(steps)

    def _refusal(self, request: Request) -> RateLimitExceeded:
        answer, outcome = self.refuse(request.META.get("HTTP_ACCEPT")), self.refused[1]
        return self._keep(answer, outcome.decision, outcome.kind == "shadow", outcome.detail)

    def refusal_for(self, request: Request, error: RateLimited) -> RateLimitExceeded:
        """A limiter of the app's own has refused, in the view: what was charged stays."""
        answer = self.deny_for(error.decision, request.META.get("HTTP_ACCEPT"))
        return self._keep(answer, error.decision, hides=False)

    def _keep(self, answer: Answer[str], decision: Decision | None, hides: bool, detail: str = "") -> RateLimitExceeded:
        status, fields, body = answer
        response = HttpResponse(body, status=status, headers=dict(fields))
        self.refusal = RateLimitExceeded(response, decision, hides, detail)
        return self.refusal

    def respond(self, request: Request, refusal: RateLimitExceeded) -> HttpResponseBase:
        """The refusal, as the app wants it to look."""
        view = self.setup.refusal_view
        if view is None or refusal.hides:
            return refusal.response
        response = (async_to_sync(view) if iscoroutinefunction(view) else view)(request, refusal)
        return _completed(response, refusal)

    async def respond_awaiting(self, request: Request, refusal: RateLimitExceeded) -> HttpResponseBase:
        """The same in an event loop."""
        view = self.setup.refusal_view
        if view is None or refusal.hides:
            return refusal.response
        if not iscoroutinefunction(view):
            return await sync_to_async(self.respond)(request, refusal)
        return _completed(await view(request, refusal), refusal)

    def end_with(self, response: HttpResponseBase) -> None:
        """What is in flight ends when the last of a streamed response was sent: Django closes it then, in a thread."""
        self.streams = True
        response._resource_closers.append(lambda: self._run(self.end()))

    def tell(self, response: HttpResponseBase) -> HttpResponseBase:
        """Say in a response how much is left."""
        if self.refusal is not None and response.status_code == self.refusal.response.status_code:
            self.refusal.give_fields(response)
        fields = self.fields
        if fields:
            headers = response.headers
            if "Access-Control-Allow-Origin" in headers:
                fields = self.responder.with_fields(headers.items(), fields)
            for name, value in fields:
                headers[name] = value
        return response


def _completed(response: Any, refusal: RateLimitExceeded) -> HttpResponseBase:  # noqa: ANN401
    if callable(getattr(response, "render", None)):  # nobody else does it where no view was called
        response = response.render()
    refusal.give_fields(response)
    completed: HttpResponseBase = response
    return completed
