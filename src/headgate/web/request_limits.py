"""All decisions about one request: by the policy in front of the app, and at its endpoint.

Every edge calls `admit`. A refusal gives back what earlier admissions charged. The header fields of the response show
what is left of all limits; its status may change what was charged.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, AnyStr, Final, TypeVar

from headgate.engine import Decision
from headgate.policy import RequestView
from headgate.policy.edges import METHODS, WAITING, FastPath, Outcome, refused
from headgate.steps import Steps
from headgate.web.endpoint import EndpointLimit
from headgate.web.merged_fields import GroupDecision, merged_fields
from headgate.web.request_charges import Decided, RequestCharges
from headgate.web.responder import Denial, Pairs, Raised, RawResponse, Responder, Shortcut

if TYPE_CHECKING:
    from headgate.web.runtime import Runtime

OF_A_BODY: Final = ("content-type", "content-length")
"""Fields that describe a refusal's body, and so do not fit another body."""
Request = Any
"""The framework's own request."""
Limits = tuple[EndpointLimit, ...]
MESSAGE: Final = "MESSAGE"
"""The method of a message on an open websocket: its connection holds a permit of the load shedder already."""


class RequestLimits(RequestCharges[AnyStr]):
    """The limits of one request. Steps are run by the edge: at once, or awaited.

    Each app has a subclass, made by `limits_of`, and there is no `__init__`: every request has one of these, and most
    leave the defaults as they are.
    """

    view: RequestView | None = None
    """The view of the request, if it was read already."""
    complete: RequestView | None = None
    """The view for which the app's functions were awaited already, by the load shedder."""
    held: bool = False
    """Whether the request has waited, for a rule that delays it or for a permit."""
    connection: Any = None
    """The framework's own request at an endpoint, for the app's functions, if `request` is another object."""
    path: str | None = None
    """The path as the app behind the policy routes it; the scope of an endpoint below a mount has another one."""
    messages: Limits = ()
    """Limits on the messages of a websocket, from its endpoint; and the endpoint's route, for their keys."""
    messages_route: str = ""
    asked: Limits = ()
    """Limits of endpoints that were evaluated already."""
    denial: Denial[AnyStr] | None = None
    """The last refusal, if the app may still send another response in its place."""
    request: Request = None
    """The refused request, for the function that makes the body of a refusal."""
    streams: bool = False
    """Whether the request ends only when its streamed response has been sent."""
    _fast_refusal: tuple[FastPath, Decision] | None = None
    _refused: Decided[AnyStr] | None = None

    def admit(
        self,
        request: Request,
        method: str,
        where: str,
        peer: str | None,
        limits: Limits | None = None,
        shortcut: Shortcut | None = None,
    ) -> bool | Steps[bool]:
        """Return whether the request is admitted; or, if its view has to be read, the steps that return it.

        Without `limits` the policy decides, and `where` is the path; with those of an endpoint, `where` is its route.
        `peer` is the other side of the connection, `shortcut` what an edge has found already. `refuse` has the refusal.
        """
        runtime, view, decision = self.runtime, None, None
        if limits is not None:
            self.asked += limits
            shortcut = runtime.fast_paths_at[limits, where, method if method in METHODS else known_method(method)]
        elif (shedding := runtime.shedding) is not None and not self.shed_asked and method != MESSAGE:
            return shedding.admit(self, request, method, where, peer)  # type: ignore[no-any-return]
        elif shortcut is None:
            shortcut = runtime.shortcuts[method][where]
        if shortcut is True or shortcut is False:  # no rule applies to such requests, or each view has to be read
            return shortcut or self._decide(request, method, where, limits, None)
        if shortcut.by_address:
            decision = shortcut.decide(peer) if runtime.clients is None else shortcut.decide_request(request, peer)
        elif runtime.prepare is None:
            view = self.read(request, method, where, limits)
            decision = shortcut.decide_by(view)
        if decision is None:
            return self._decide(request, method, where, limits, view)
        if limits is not None and (
            self.fast is not None or self.permit is not None
        ):  # a policy always comes first, so only limits can be second
            return self._add_fast(shortcut, decision, request)
        if decision.allowed:
            self.fast = shortcut, decision
            return True
        self._fast_refusal, self._refused, self.request = (shortcut, decision), None, request
        return False

    def admit_at(self, shortcut: FastPath, limits: Limits, request: Request, peer: str | None) -> bool | None:
        """Return whether the client's address is admitted at an endpoint; None if `admit` has to decide.

        Most requests to endpoints pass here, and nowhere else: no other decision has been made about them.
        """
        if self.fast is not None or self.permit is not None:
            return None
        decision = shortcut.decide(peer) if self.runtime.clients is None else shortcut.decide_request(request, peer)
        if decision is None:
            return None
        self.asked += limits
        if decision.allowed:
            self.fast = shortcut, decision
            return True
        self._fast_refusal, self._refused, self.request = (shortcut, decision), None, request
        return False

    def read(self, request: Request, method: str, where: str, limits: Limits | None) -> RequestView:
        """Return the view of the request; one that was read just before is used once."""
        read, self.view = self.view, None
        view: RequestView = self.runtime.view(request) if read is None else read
        if view.method != method:
            view.method = method.upper()
        if limits is None:
            view.path = where
        else:
            view.route = where
            if self.connection is not None:
                view.request, view.path = self.connection, self.path or "/"
        return view

    def _decide(
        self, request: Request, method: str, where: str, limits: Limits | None, view: RequestView | None
    ) -> Steps[bool]:
        """Read the view of the request, and decide."""
        runtime: Runtime[AnyStr] = self.runtime
        if view is None:
            view = self.read(request, method, where, limits)
        if self.permit is not None and runtime.shedding is not None and limits is None:
            runtime.shedding.mark(view, self.permit)
        responder = runtime.responder(view) if limits is None else runtime.responder_at(view, limits)
        if runtime.prepare is not None:
            yield from runtime.prepare(view, responder, limits or ())
        if runtime.awaited_options.names and view is not self.complete:
            yield runtime.awaited_options.step(request, view)
        if responder.awaited:
            yield from responder.await_functions(view)
        outcome = yield from responder.compiled.before(view)
        if view.would_refuse and self.permit is not None:
            self.permit.shedder.count_refusal(self.permit, "fleet")
        if outcome.kind != "pass":
            self.request = request
            return (yield from self._refuse(responder, outcome))
        self._add(responder, outcome)
        if outcome.delay_us:
            yield from self.hold_back(outcome.delay_us)
        return True

    def hold_back(self, delay_us: int) -> Steps[None]:
        """Let a request wait for a rule that delays it."""
        self.held = True
        gauges = self.runtime.counts.gauges
        gauges.add(WAITING)
        try:
            yield self.runtime.pause(delay_us)
        except BaseException:
            yield from self.refund()
            raise
        finally:
            gauges.add(WAITING, -1)

    def _add(self, responder: Responder[AnyStr], outcome: Outcome) -> None:
        every = [] if self.fast is None else list(self.outcomes())
        every.append((responder, outcome))
        self.admitted, self.fast = tuple(every), False
        for charge in outcome.charges:
            self.follows = self.charged = True
            self.holds_permits = self.holds_permits or charge.group.holds_permits

    def _add_fast(self, fast: FastPath, decision: Decision, request: Request) -> bool | Steps[bool]:
        """Add a decision of a fast path that is not the first about this request."""
        if not decision.allowed:
            self.request = request
            return self._refuse(fast.responder, refused(fast.group, decision))
        self._add(fast.responder, Outcome("pass", 200, None, decision, fast.group))
        return True

    def turn_away(self, outcome: Outcome, request: Request) -> bool:
        """Refuse a request for which the load shedder has no permit."""
        self.request = request
        self._refused, self._fast_refusal = (self.runtime.responder_now, outcome), None
        return False

    def _refuse(self, responder: Responder[AnyStr], outcome: Outcome) -> Steps[bool]:
        if outcome.overload and self.permit is not None:
            wait = self.permit.shedder.count_refusal(self.permit, "fleet")
            outcome = outcome._replace(retry_after=wait)
        yield from self.refund()
        self._refused, self._fast_refusal = (responder, outcome), None
        return False

    @property
    def refused(self) -> Decided[AnyStr]:
        """The refusal, with its responder."""
        if self._refused is None:
            assert self._fast_refusal is not None  # noqa: S101 - called after a refusal only
            fast, decision = self._fast_refusal
            self._refused = fast.responder, refused(fast.group, decision)
        return self._refused

    def refuse(self, accept: str | bytes | None) -> RawResponse[AnyStr]:
        """Return status, headers and body of the refusal."""
        if self._fast_refusal is not None:
            fast, decision = self._fast_refusal
            answer: RawResponse[AnyStr] = fast.responder.refuse_fast(fast, decision, accept, self.request)
            return answer
        responder, outcome = self.refused
        return responder.refuse(outcome, accept, self.request)

    def deny(self, accept: str | bytes | None) -> RawResponse[AnyStr]:
        """Like `refuse`, if the app may send another response: the fields of the refusal are added to that."""
        responder, outcome = self.refused
        answer = responder.refuse(outcome, accept, self.request)
        if outcome.kind == "deny":
            self._deny(responder, answer)
        return answer

    def deny_for(self, error: Raised, accept: str | bytes | None, request: Request) -> RawResponse[AnyStr]:
        """Like `deny`, for a limiter or a budget of the app's own in a view. The charges so far stay."""
        responder = self.runtime.responder_now
        answer: RawResponse[AnyStr] = responder.refuse_raised(error, accept, request)
        self._deny(responder, answer)
        return answer

    def _deny(self, responder: Responder[AnyStr], answer: RawResponse[AnyStr]) -> None:
        text = responder.codec.text
        self.denial = Denial(responder, [pair for pair in answer[1] if text(pair[0]).lower() not in OF_A_BODY])

    @property
    def responder(self) -> Responder[AnyStr]:
        """The responder that adds header fields: that of the first admission."""
        if self.fast:
            responder: Responder[AnyStr] = self.fast[0].responder
            return responder
        return self.admitted[0][0] if self.admitted else self.runtime.responder_now

    @property
    def fields(self) -> Pairs[AnyStr]:
        """The header fields that show how much is left; none after a refusal, which has its own."""
        if self.denial is not None:
            return []
        if not self.fast:
            return self._fields_of_all() if self.admitted else []
        fast, decision = self.fast
        return fast.write_fields(decision)

    def _fields_of_all(self) -> Pairs[AnyStr]:
        told: list[GroupDecision[AnyStr]] = []
        for responder, outcome in self.admitted:
            if outcome.group is not None and outcome.decision is not None:
                settled = self._settled.get(outcome.decision)
                told.append((responder, outcome.group, outcome.decision if settled is None else settled[1]))
        if len(told) == 1:
            responder, group, decision = told[0]
            return responder.fields(group, decision)
        return merged_fields(told) if told else []

    def with_fields(self, headers: Iterable[tuple[AnyStr, AnyStr]]) -> Iterable[tuple[AnyStr, AnyStr]]:
        """Return the headers of a response, with our fields added."""
        if self.denial is not None:
            return self.denial.completed(headers)
        if self.fast:  # most responses
            shortcut, decision = self.fast
            return shortcut.with_fields(headers, decision)
        fields = self.fields
        return self.responder.with_fields(headers, fields) if fields else headers


Limited = TypeVar("Limited", bound=RequestLimits[Any])


def limits_of(runtime: Runtime[AnyStr]) -> type[RequestLimits[AnyStr]]:
    """Return an app's subclass of `RequestLimits`, which saves each request a call of `__init__`."""
    return limits_like(RequestLimits, runtime)


def limits_like(base: type[Limited], runtime: Runtime[Any]) -> type[Limited]:
    """Return an app's subclass of an edge's own limits."""
    return type(RequestLimits.__name__, (base,), {"runtime": runtime})


def known_method(method: str) -> str:
    """Return a method as rules spell it, or "" for a method that no rule can name."""
    upper = method.upper()
    return upper if upper in METHODS else ""
