"""The limits of one request to the site, Django's response to a refusal, and lookups before rules read the request."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

from asgiref.sync import async_to_sync, iscoroutinefunction, sync_to_async
from django.http import HttpResponse
from django.http.response import HttpResponseBase

from headgate.engine import Decision
from headgate.errors import HeadgateError
from headgate.policy import Policy, RequestView
from headgate.policy.edges import Rule
from headgate.steps import Deferred, Steps, run, run_awaiting
from headgate.web.django.limits import ViewLimit, has_throttles, limits_at
from headgate.web.django.request import Request, SiteView, View, result_in_loop, route_of
from headgate.web.django.settings import Setup
from headgate.web.endpoint import EndpointLimit
from headgate.web.request_limits import OF_A_BODY, RequestLimits
from headgate.web.responder import Raised, RawResponse, Responder

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

ON_REQUEST: Final = "_headgate"
"""The attribute of a request that holds its limits, for the middleware, decorators and throttles."""
Limits = tuple[ViewLimit, ...]
Prepare = Callable[[RequestView, Responder[str], tuple[EndpointLimit, ...]], Steps[None]]


class RateLimitExceeded(HeadgateError):
    """A refusal, for `REFUSAL_VIEW`.

    `response` is the response sent by default, `retry_after` the whole seconds to wait, if they are shown.
    """

    def __init__(self, response: HttpResponse, decision: Decision | None, hides: bool, detail: str = "") -> None:
        super().__init__("rate limited")
        self.detail = detail or response.reason_phrase
        self.response = response
        self.decision = decision
        self.retry_after = int(response["Retry-After"]) if "Retry-After" in response else None
        self.hides = hides
        """Whether it must look like an ordinary response, so that `REFUSAL_VIEW` is not called."""

    def give_fields(self, response: HttpResponseBase) -> None:
        """Add the refusal's header fields to another response."""
        for name, value in self.response.items():
            if name.lower() not in OF_A_BODY:
                response.setdefault(name, value)


class SiteLimits(RequestLimits[str]):
    """The limits of one request. `enter` (threads) and `enter_awaiting` (event loops) return a refusal, or None."""

    setup: ClassVar[Setup]
    refusal: RateLimitExceeded | None = None
    settles = True
    """Whether a middleware settles the charges by the response."""

    def limits_at(self, request: Request, view: View) -> Iterable[tuple[Limits, str]]:
        """Return the limits of a view and those of its method, or the default limits if it has none."""
        if self.asked:  # threads that share a test client load its middleware twice
            return ()
        own = limits_at(view, request.method)
        default = self.setup.default
        if own or default is None or has_throttles(view):
            return own
        if self.setup.exempt_admin and "admin" in request.resolver_match.app_names:
            return ()
        return [((default,), "")]

    def enter(self, request: Request, limits: Limits | None = None, at: str = "") -> RateLimitExceeded | None:
        """Decide by the policy, or by a view's limits; `at` names the place inside of the view, if any."""
        admitted = self._ask(request, limits, at)
        if not isinstance(admitted, bool):
            admitted = self._run(admitted)
        return None if admitted else self._refusal(request)

    async def enter_awaiting(
        self, request: Request, limits: Limits | None = None, at: str = ""
    ) -> RateLimitExceeded | None:
        """Like `enter`, in an event loop."""
        admitted = self._ask(request, limits, at)
        if not isinstance(admitted, bool):
            admitted = await run_awaiting(admitted)
        return None if admitted else self._refusal(request)

    def _ask(self, request: Request, limits: Limits | None, at: str) -> bool | Steps[bool]:
        where = request.path_info if limits is None else route_of(request, at) or ""
        return self.admit(request, request.method, where, request.META.get("REMOTE_ADDR"), limits)

    def _run(self, steps: Steps[Any]) -> Any:  # noqa: ANN401
        """Run steps in a thread, which may be Django's own for a view that is not async."""
        return async_to_sync(run_awaiting)(steps) if self.runtime.awaits else run(steps)

    def _refusal(self, request: Request) -> RateLimitExceeded:
        answer, outcome = self.refuse(request.META.get("HTTP_ACCEPT")), self.refused[1]
        return self._keep(answer, outcome.decision, outcome.kind == "shadow", outcome.detail)

    def refusal_for(self, request: Request, error: Raised) -> RateLimitExceeded:
        """Return the refusal for a limiter or a budget of the app's own in a view; the charges so far stay."""
        answer = self.deny_for(error, request.META.get("HTTP_ACCEPT"), request)
        return self._keep(answer, getattr(error, "decision", None), hides=False)

    def _keep(
        self, answer: RawResponse[str], decision: Decision | None, hides: bool, detail: str = ""
    ) -> RateLimitExceeded:
        status, fields, body = answer
        response = HttpResponse(body, status=status, headers=dict(fields))
        self.refusal = RateLimitExceeded(response, decision, hides, detail)
        return self.refusal

    def respond(self, request: Request, refusal: RateLimitExceeded) -> HttpResponseBase:
        """Return the response to a refusal, from `REFUSAL_VIEW` if it is set."""
        view = self.setup.refusal_view
        if view is None or refusal.hides:
            return refusal.response
        response = (async_to_sync(view) if iscoroutinefunction(view) else view)(request, refusal)
        return _completed(response, refusal)

    async def respond_awaiting(self, request: Request, refusal: RateLimitExceeded) -> HttpResponseBase:
        """Like `respond`, in an event loop."""
        view = self.setup.refusal_view
        if view is None or refusal.hides:
            return refusal.response
        if not iscoroutinefunction(view):
            return await sync_to_async(self.respond)(request, refusal)
        return _completed(await view(request, refusal), refusal)

    def end_with(self, response: HttpResponseBase, loop: AbstractEventLoop | None = None) -> None:
        """Release permits after the last piece of a streamed response: Django then closes it, in a thread."""
        self.streams = True

        def close() -> None:
            if loop is not None and self.runtime.awaits:
                self.over(loop)
            self._run(self.end())

        response._resource_closers.append(close)

    def tell(self, response: HttpResponseBase) -> HttpResponseBase:
        """Add the header fields that show how much is left."""
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
    if callable(getattr(response, "render", None)):  # Django renders only the responses of views
        response = response.render()
    refusal.give_fields(response)
    completed: HttpResponseBase = response
    return completed


def preparing(setup: Setup, awaited: bool) -> Prepare | None:
    """Return the lookups of a site; None if rules can do them all themselves."""
    return partial(_prepare, setup) if awaited or setup.plan_of is not None else None


def _prepare(
    setup: Setup, view: RequestView, responder: Responder[str], limits: tuple[EndpointLimit, ...]
) -> Steps[None]:
    yield _Lookups(setup, cast("SiteView", view), responder.compiled.policy, cast("tuple[ViewLimit, ...]", limits))


class _Lookups(Deferred):
    def __init__(self, setup: Setup, view: SiteView, policy: Policy, limits: tuple[ViewLimit, ...]) -> None:
        self._setup, self._view, self._limits = setup, view, limits
        self._rules = policy.rules_for(view.method, view.path).set.rules
        self._by_user = any("user" in rule.parts for rule in self._rules) or "user" in _tenant_parts(policy)
        asks = setup.plan_of is not None and _by_plan(policy, self._rules)
        self._plan_of: Callable[[Request], str | None] | None = setup.plan_of if asks else None

    def now(self) -> None:
        """Look up the plan in a thread, where rules look up the rest when they need it."""
        if self._plan_of is not None:
            self._view.plan = self._plan_of(self._view.request)

    def __await__(self) -> Generator[Any, Any, None]:
        return self._look_up().__await__()

    async def _look_up(self) -> None:
        view = self._view
        if self._by_user:
            view.user = await result_in_loop(self._setup.user_of, view.request)
        if self._plan_of is not None:
            view.plan = await result_in_loop(self._plan_of, view.request)
        for limit in self._limits:
            for function in limit.functions:
                view.known[function] = await result_in_loop(function, view.request)


def _tenant_parts(policy: Policy) -> tuple[str, ...]:
    """Return the parts of the key of a load shedder's tenants."""
    return () if policy.shed is None else policy.shed.tenant_parts


def _by_plan(policy: Policy, rules: Sequence[Rule]) -> bool:
    """Return whether the decision may depend on the plan; conditions may read it."""
    if policy.allow is not None or policy.deny is not None or policy.shed is not None:
        return True
    return any(
        len(rule.plans or ()) > 1 or "plan" in rule.parts or rule.match.conditions or rule.exempt is not None
        for rule in rules
    )
