"""Everything that was decided about one request, by the policy in front of the app and at its endpoint.

`admit` is the one way in, for every edge. A refusal gives back what earlier admissions charged. The response tells what
is left of all of them, and says whether what was charged was right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, AnyStr, ClassVar, Final, Generic, Literal, cast

from headgate.engine import Decision
from headgate.policy.fast_path import FastPath, Keys
from headgate.policy.key import client_key
from headgate.policy.match import METHODS
from headgate.policy.outcome import Charge, LimitGroup, Outcome, refused
from headgate.policy.settling import refund, release, settle
from headgate.policy.steps import Steps
from headgate.policy.view import RequestView
from headgate.web.endpoint import EndpointLimit
from headgate.web.merged_fields import GroupDecision, merged_fields
from headgate.web.responder import Answer, Denial, Pairs, Responder, Way

if TYPE_CHECKING:
    from headgate.web.runtime import Runtime

FAILED: Final = 500
"""The status of a request that has no response."""
OF_A_BODY: Final = ("content-type", "content-length")
"""Fields of a refusal's body, which another answer does not have."""
Request = Any
"""The framework's own request."""
Limits = tuple[EndpointLimit, ...]
Decided = tuple[Responder[AnyStr], Outcome]
"""An outcome, and who answers for it."""


class RequestLimits(Generic[AnyStr]):
    """The limits of one request. Steps are run by the edge: at once, or awaited.

    Each app has a subclass, made by `limits_of`, and there is no `__init__`: every request has one of these, and most
    leave the defaults as they are.
    """

    runtime: ClassVar[Any]
    view: RequestView | None = None
    """The request as policies see it, where it was read already."""
    follows: bool = False
    """Whether the response, or its end, has a say in what was charged."""
    holds_permits: bool = False
    """Whether something is in flight until the end."""
    held: bool = False
    """Whether a rule that delays has held the request."""
    connection: Any = None
    """The framework's own request at an endpoint, for the app's functions, where `request` is something else."""
    path: str | None = None
    """The path as the app behind the policy routes it: at an endpoint below a mount, a scope has another one."""
    messages: Limits = ()
    """Limits of the messages of a websocket, from its endpoint; and the endpoint, for their keys."""
    messages_route: str = ""
    asked: Limits = ()
    """Limits of endpoints that were asked already."""
    denial: Denial[AnyStr] | None = None
    """The refusal that was written last, where the app may still answer something else."""
    streams: bool = False
    """The request is over when its response has been sent."""
    fast: tuple[FastPath, Decision] | Literal[False] | None = None
    """The only admission so far, by a fast path; None before any, False where there are several or one took steps."""
    admitted: tuple[Decided[AnyStr], ...] = ()
    """Admissions, where `fast` is False."""
    _fast_refusal: tuple[FastPath, Decision] | None = None
    _refused: Decided[AnyStr] | None = None
    _counted = False
    _left: Mapping[LimitGroup, Decision] = MappingProxyType({})
    """What is left where the response has changed what was charged."""

    def admit(
        self, request: Request, method: str, where: str, peer: str | None, limits: Limits | None = None
    ) -> bool | Steps[bool]:
        """Whether the request may go on; or the steps that find this out, where it has to be looked at.

        Without `limits` the policy decides, and `where` is the path; with those of an endpoint, `where` is its route.
        `peer` is the address of the other side of the connection. After False, `refuse` has the answer.
        """
        runtime, view = self.runtime, None
        keys: Keys | None = None
        if limits is None:
            way: Way = runtime.fast_paths[method, where]
        else:
            self.asked += limits
            way = runtime.fast_paths_at[limits, where, method if method in METHODS else _known(method)]
        if way is True or way is False:  # no rule is for such requests, or each has to be looked at
            return way or self._decide(request, method, where, limits, None)
        if way.by_address:
            client = peer if runtime.clients is None else runtime.clients(request, peer)
            if client:
                key = client_key(client)
                keys = way.prefix + key.replace("|", "\\p") if way.prefix else key  # as `key.join` does
        elif runtime.prepare is None:
            view = self._read(request, method, where, limits)
            keys = way.keys(view)
        try:
            decision = None if keys is None else way.ask(keys, way.costs)
        except Exception:  # the steps ask again, and answer by `on_error`
            decision = None
        if decision is None:
            return self._decide(request, method, where, limits, view)
        if limits is not None and self.fast is not None:  # a policy is asked before everything else
            return self._add_fast(way, decision)
        if decision.allowed:
            self.fast = way, decision
            return True
        self._fast_refusal, self._refused = (way, decision), None
        return False

    def _read(self, request: Request, method: str, where: str, limits: Limits | None) -> RequestView:
        """The request as policies see it, unless it was read just before."""
        view, self.view = self.view, None
        if view is None:
            view = cast("RequestView", self.runtime.view(request))
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
        """Look at the request, and decide."""
        runtime: Runtime[AnyStr] = self.runtime
        if view is None:
            view = self._read(request, method, where, limits)
        responder = runtime.responder(view) if limits is None else runtime.responder_at(view, limits)
        if runtime.prepare is not None:
            yield from runtime.prepare(view, responder, limits or ())
        outcome = yield from responder.compiled.before(view)
        if outcome.kind != "pass":
            return (yield from self._refuse(responder, outcome))
        self._add(responder, outcome)
        if outcome.delay_us:
            self.held = True
            try:
                yield runtime.pause(outcome.delay_us)
            except BaseException:
                yield from self.refund()
                raise
        return True

    def _add(self, responder: Responder[AnyStr], outcome: Outcome) -> None:
        every = list(self._every())
        every.append((responder, outcome))
        self.admitted, self.fast = tuple(every), False
        if outcome.charges:
            self.follows = True
            self.holds_permits = self.holds_permits or any(charge.group.holds_permits for charge in outcome.charges)

    def _add_fast(self, fast: FastPath, decision: Decision) -> bool | Steps[bool]:
        """A decision of a fast path that is not the first about this request."""
        if not decision.allowed:
            return self._refuse(fast.responder, refused(fast.group, decision))
        self._add(fast.responder, Outcome("pass", 200, None, decision, fast.group))
        return True

    def _refuse(self, responder: Responder[AnyStr], outcome: Outcome) -> Steps[bool]:
        yield from self.refund()
        self._refused, self._fast_refusal = (responder, outcome), None
        return False

    def _every(self) -> tuple[Decided[AnyStr], ...]:
        """All admissions."""
        if not self.fast:
            return self.admitted
        fast, decision = self.fast
        return ((fast.responder, Outcome("pass", 200, None, decision, fast.group)),)

    @property
    def refused(self) -> Decided[AnyStr]:
        """The refusal."""
        if self._refused is None:
            assert self._fast_refusal is not None  # noqa: S101 - asked after a refusal only
            fast, decision = self._fast_refusal
            self._refused = fast.responder, refused(fast.group, decision)
        return self._refused

    def refuse(self, accept: str | bytes | None) -> Answer[AnyStr]:
        """Status, headers and body of the refusal."""
        if self._fast_refusal is not None and not self._fast_refusal[0].shadows:
            fast, decision = self._fast_refusal
            answer: Answer[AnyStr] = fast.responder.refuse_by(fast.group, decision, accept)
            return answer
        responder, outcome = self.refused
        return responder.refuse(outcome, accept)

    def deny(self, accept: str | bytes | None) -> Answer[AnyStr]:
        """As `refuse`, where the app may answer something else: the fields of the refusal are added to that."""
        responder, outcome = self.refused
        answer = responder.refuse(outcome, accept)
        if outcome.kind == "deny":
            self._deny(responder, answer)
        return answer

    def deny_for(self, decision: Decision, accept: str | bytes | None) -> Answer[AnyStr]:
        """The same where a limiter of the app's own has refused, in a view. What was charged stays."""
        responder = self.runtime.responder_now
        answer: Answer[AnyStr] = responder.refuse_for(decision, accept)
        self._deny(responder, answer)
        return answer

    def _deny(self, responder: Responder[AnyStr], answer: Answer[AnyStr]) -> None:
        text = responder.codec.text
        self.denial = Denial(responder, [pair for pair in answer[1] if text(pair[0]).lower() not in OF_A_BODY])

    @property
    def responder(self) -> Responder[AnyStr]:
        """Who adds header fields: the first that had a say."""
        responder: Responder[AnyStr] = self.fast[0].responder if self.fast else self.admitted[0][0]
        return responder

    @property
    def fields(self) -> Pairs[AnyStr]:
        """The header fields that say how much is left; a refusal says that itself."""
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
                told.append((responder, outcome.group, self._left.get(outcome.group, outcome.decision)))
        if len(told) == 1:
            responder, group, decision = told[0]
            return responder.fields(group, decision)
        return merged_fields(told) if told else []

    def with_fields(self, headers: Iterable[tuple[AnyStr, AnyStr]]) -> Iterable[tuple[AnyStr, AnyStr]]:
        """The headers of a response, with ours."""
        if self.denial is not None:
            return self.denial.completed(headers)
        fields = self.fields
        return self.responder.with_fields(headers, fields) if fields else headers

    def after(self, status: int, header: Callable[[str], str | None]) -> Steps[None]:
        """Count what the response says, once; later calls change nothing."""
        if not self._counted:
            self._counted, self.follows = True, self.holds_permits
            for _, outcome in self.admitted:
                if outcome.charges:
                    left = yield from settle(outcome.charges, status, header)
                    self._left = {**self._left, **left}

    def end(self, status: int = FAILED, header: Callable[[str], str | None] = lambda name: None) -> Steps[None]:
        """The request is over. If it was not counted before, it is as this; an app that did not answer has failed."""
        yield from self.after(status, header)
        yield from self.release()

    def release(self) -> Steps[None]:
        """Give back what is in flight."""
        if self.holds_permits:
            self.holds_permits = self.follows = False
            for _, outcome in self.admitted:
                yield from release(outcome.charges)

    def refund(self) -> Steps[None]:
        """Give everything back: the request goes no further."""
        admitted, self.admitted, self.fast = self._every(), (), None
        self.follows = self.holds_permits = False
        for _, outcome in admitted:
            every = [charge for charge in outcome.charges if charge.decision is not outcome.decision]
            if outcome.group is not None and outcome.decision is not None:
                every.append(Charge(outcome.group, outcome.decision))
            yield from refund(every)


def limits_of(runtime: Runtime[AnyStr]) -> type[RequestLimits[AnyStr]]:
    """The class of the limits of each request to an app: by its own class, a request costs no call of `__init__`."""
    return type("RequestLimits", (RequestLimits,), {"runtime": runtime})


def _known(method: str) -> str:
    """A method in the spelling of rules; the client's own methods are all the same to them."""
    upper = method.upper()
    return upper if upper in METHODS else ""
