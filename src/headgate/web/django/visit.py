"""A visit: one request on its way through the site, and what was decided about it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from asgiref.sync import async_to_sync, iscoroutinefunction, sync_to_async
from django.http import HttpResponse
from django.http.response import HttpResponseBase

from headgate.engine import Decision
from headgate.errors import HeadgateError, RateLimited
from headgate.policy.outcome import PASS, Outcome
from headgate.policy.policy import Policy
from headgate.policy.rule import Rule
from headgate.policy.steps import Steps, run, run_awaiting
from headgate.web import asgi, wsgi
from headgate.web.django.limits import ViewLimit, has_throttles, limits_at
from headgate.web.django.request import Request, SiteView, View, route_of, told_in_loop
from headgate.web.django.settings import Setup
from headgate.web.request_limits import RequestLimits
from headgate.web.responder import Pairs, Responder
from headgate.web.runtime import Runtime

VISIT: Final = "_headgate"
"""Where the middleware, decorators and throttles find it on the request."""
OF_THE_BODY: Final = ("content-type", "content-length")
Limits = tuple[ViewLimit, ...]


class RateLimitExceeded(HeadgateError):
    """A no, for `REFUSAL_VIEW`: `response` is what would be sent, `retry_after` the whole seconds to wait if told."""

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
            if name.lower() not in OF_THE_BODY:
                response.setdefault(name, value)


class Visit:
    """One request. `enter` is for threads, `enter_awaiting` for event loops; both give a refusal, or None."""

    # What most requests leave as it is stands here.
    awaits = False
    """The store has to be awaited."""
    entered: Limits = ()
    """Limits that need not be asked again."""
    no: RateLimitExceeded | None = None
    streams = False
    """It is over when its response has been sent."""
    settles = True
    """There is somebody who counts what the response says."""

    def __init__(self, setup: Setup, runtime: Runtime[str]) -> None:
        self._setup = setup
        self._runtime = runtime
        self.request_limits: RequestLimits[str] = RequestLimits(runtime)

    @property
    def fronted(self) -> bool:
        """There is a policy to ask first."""
        return self._setup.policy is not None

    def limits_of(self, request: Request, view: View) -> Iterable[tuple[Limits, str]]:
        """The limits of a view and those of its method, or the default ones where it has none of its own."""
        if self.entered:  # asked already: threads that share a test client load its middleware twice
            return ()
        own = limits_at(view, request.method)
        default = self._setup.default
        if own or default is None or has_throttles(view):
            return own
        if self._setup.exempt_admin and "admin" in request.resolver_match.app_names:
            return ()
        return [((default,), "")]

    def enter(self, request: Request, limits: Limits | None = None, at: str = "") -> RateLimitExceeded | None:
        """Rule by the policy; or, at a view, by its limits; `at` says where in it, if not in front."""
        if self.awaits:  # in a thread of Django's, for a view that is not async
            return async_to_sync(self.enter_awaiting)(request, limits, at)
        found = self._at_once(request, limits, at)
        if found is not None and found[1] is PASS:
            return None
        if found is None:
            view, responder = self._read(request, limits, at)
            plan_of = self._plan_of(view, responder)
            if plan_of is not None:
                view.plan = plan_of(request)
            found = responder, run(self._steps(view, responder, limits))
        if found[1].kind != "pass":
            run(self.request_limits.release())
        elif found[1].delay_us:
            wsgi.hold(self.request_limits, found[1].delay_us)
        return self._refused(request, *found)

    async def enter_awaiting(
        self, request: Request, limits: Limits | None = None, at: str = ""
    ) -> RateLimitExceeded | None:
        """The same; what asks the database is asked before, in Django's thread."""
        found = self._at_once(request, limits, at)
        if found is not None and found[1] is PASS:
            return None
        if found is None:
            view, responder = self._read(request, limits, at)
            await self._know(view, responder, limits or ())
            found = responder, await run_awaiting(self._steps(view, responder, limits))
        if found[1].kind != "pass":
            await run_awaiting(self.request_limits.release())
        elif found[1].delay_us:
            await asgi.hold(self.request_limits, found[1].delay_us)
        return self._refused(request, *found)

    def _at_once(self, request: Request, limits: Limits | None, at: str) -> tuple[Responder[str], Outcome] | None:
        """What needs no look at the request: limits by address on a store that answers at once. None otherwise."""
        address = request.META.get("REMOTE_ADDR")
        if limits is None:
            return self.request_limits.ask(self._runtime.fast_paths[request.method, request.path_info], address)
        self.entered += limits
        route = route_of(request, at)
        return (
            self.request_limits.ask(self._runtime.fast_path_at(limits, route, request.method), address)
            if route
            else None
        )

    def _read(self, request: Request, limits: Limits | None, at: str) -> tuple[SiteView, Responder[str]]:
        view = self._runtime.view(request)
        assert isinstance(view, SiteView)  # noqa: S101 - the runtime reads by `read_request`
        if limits is None:
            responder = self._runtime.responder(view)
        else:
            view.route = route_of(request, at)
            responder = self._runtime.responder_at(view, limits)
        return view, responder

    async def _know(self, view: SiteView, responder: Responder[str], limits: Limits) -> None:
        """Find out what the rules will ask for: they cannot wait for it."""
        if any("user" in rule.parts for rule in _rules(view, responder)):
            view.user = await told_in_loop(self._setup.user_of, view.request)
        plan_of = self._plan_of(view, responder)
        if plan_of is not None:
            view.plan = await told_in_loop(plan_of, view.request)
        for limit in limits:
            for function in limit.functions:
                view.known[function] = await told_in_loop(function, view.request)

    def _plan_of(self, view: SiteView, responder: Responder[str]) -> Callable[[Request], str | None] | None:
        """Who says which plan a request has, where that makes a difference."""
        plan_of = self._setup.plan_of
        return plan_of if plan_of is not None and _by_plan(responder.compiled.policy, _rules(view, responder)) else None

    def _steps(self, view: SiteView, responder: Responder[str], limits: Limits | None) -> Steps[Outcome]:
        steps = self.request_limits.begin(view) if limits is None else self.request_limits.enter(view, limits)
        _, outcome = yield from steps
        return outcome

    def _refused(self, request: Request, responder: Responder[str], outcome: Outcome) -> RateLimitExceeded | None:
        if outcome.kind == "pass":
            return None
        answer = responder.refuse(outcome, request.META.get("HTTP_ACCEPT"))
        return self._no(answer, outcome.decision, outcome.kind == "shadow", outcome.detail)

    def refuse_by(self, request: Request, error: RateLimited) -> RateLimitExceeded:
        """A limiter of the app's own has refused, in the view: what was charged stays."""
        answer = self.request_limits.refuse_for(error.decision, request.META.get("HTTP_ACCEPT"))
        return self._no(answer, error.decision, hides=False)

    def _no(
        self, answer: tuple[int, Pairs[str], bytes], decision: Decision | None, hides: bool, detail: str = ""
    ) -> RateLimitExceeded:
        status, fields, body = answer
        response = HttpResponse(body, status=status, headers=dict(fields))
        self.no = RateLimitExceeded(response, decision, hides, detail)
        return self.no

    def respond(self, request: Request, no: RateLimitExceeded) -> HttpResponseBase:
        """The refusal, as the app wants it to look."""
        view = self._setup.refusal_view
        if view is None or no.hides:
            return no.response
        response = (async_to_sync(view) if iscoroutinefunction(view) else view)(request, no)
        return _completed(response, no)

    async def respond_awaiting(self, request: Request, no: RateLimitExceeded) -> HttpResponseBase:
        """The same in an event loop."""
        view = self._setup.refusal_view
        if view is None or no.hides:
            return no.response
        if not iscoroutinefunction(view):
            return await sync_to_async(self.respond)(request, no)
        return _completed(await view(request, no), no)

    def end_with(self, response: HttpResponseBase) -> None:
        """What is in flight ends when the last of a streamed response was sent: Django closes it then, in a thread."""
        self.streams, request_limits = True, self.request_limits
        response._resource_closers.append(
            lambda: async_to_sync(run_awaiting)(request_limits.end()) if self.awaits else run(request_limits.end())
        )

    def tell(self, response: HttpResponseBase) -> HttpResponseBase:
        """Say in a response how much is left."""
        if self.no is not None and response.status_code == self.no.response.status_code:
            self.no.give_fields(response)
        fields = self.request_limits.fields
        if fields:
            headers = response.headers
            if "Access-Control-Allow-Origin" in headers:
                fields = self.request_limits.responder.with_fields(headers.items(), fields)
            for name, value in fields:
                headers[name] = value
        return response


def _rules(view: SiteView, responder: Responder[str]) -> Sequence[Rule]:
    return responder.compiled.policy.rules_for(view.method, view.path).set.rules


def _by_plan(policy: Policy, rules: Sequence[Rule]) -> bool:
    """Whether the plan makes a difference; conditions may ask for it."""
    if policy.allow is not None or policy.deny is not None:
        return True
    return any(
        len(rule.plans or ()) > 1 or "plan" in rule.parts or rule.match.conditions or rule.exempt is not None
        for rule in rules
    )


def _completed(response: Any, no: RateLimitExceeded) -> HttpResponseBase:  # noqa: ANN401
    if callable(getattr(response, "render", None)):  # nobody else does it where no view was called
        response = response.render()
    no.give_fields(response)
    completed: HttpResponseBase = response
    return completed
