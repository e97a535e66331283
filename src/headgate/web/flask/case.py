"""The limits of one request, decided at once."""

from __future__ import annotations

from typing import Final, NamedTuple

from headgate.engine import Decision
from headgate.policy.outcome import Outcome, refused
from headgate.policy.steps import run
from headgate.policy.view import RequestView
from headgate.web.endpoint import EndpointLimit
from headgate.web.request_limits import Entry, RequestLimits
from headgate.web.responder import Found, Pairs, Responder, decide
from headgate.web.runtime import Runtime
from headgate.web.wsgi import hold

OF_A_BODY: Final = ("Content-Type", "Content-Length")


class No(NamedTuple):
    """A refusal."""

    status: int
    fields: Pairs[str]
    body: bytes
    decision: Decision | None
    shadow: bool
    """It is to look like any other response."""

    @property
    def told(self) -> Pairs[str]:
        """The fields that belong to whatever the app answers instead."""
        return [pair for pair in self.fields if pair[0] not in OF_A_BODY]


class Case(RequestLimits[str]):
    """One request. A no has given back what was charged before it."""

    def __init__(self, runtime: Runtime[str], first: Entry[str] | None = None) -> None:
        super().__init__(runtime, first)
        self.limits: tuple[EndpointLimit, ...] = ()
        """Of those at endpoints, the ones that were asked."""
        self.no: No | None = None
        self.streams = False
        """It is over when its response has been sent."""

    def front(self, view: RequestView) -> No | None:
        """Rule by the policy in front of the app."""
        found = self.runtime.fast_paths[view.method, view.path]
        return self._rule(found[0] if found is not None else self.runtime.responder(view), found, view)

    def come_to(self, view: RequestView, limits: tuple[EndpointLimit, ...]) -> No | None:
        """Rule by limits at an endpoint, which `view.route` names."""
        self.limits += limits
        found = self.runtime.fast_path_at(limits, view.route or "", view.method)
        return self._rule(found[0] if found is not None else self.runtime.responder_at(view, limits), found, view)

    def _rule(self, responder: Responder[str], found: Found[str] | None, view: RequestView) -> No | None:
        fast_path = found[1] if found is not None else None
        if fast_path is not None:
            decision = decide(fast_path, fast_path.keys(view))
            if decision is not None:
                if decision.allowed:
                    self._add(Entry(responder, fast_path.group, decision, ()))
                    return None
                return self.refuse(responder, refused(fast_path.group, decision), view.accept)
        _, outcome = run(self._compiled(responder, view))
        if outcome.kind != "pass":
            return self.refuse(responder, outcome, view.accept)
        if outcome.delay_us:
            hold(self, outcome.delay_us)
        return None

    def refuse(self, responder: Responder[str], outcome: Outcome, accept: str | None) -> No:
        """The request goes no further."""
        run(self.release())
        self.no = No(*responder.refuse(outcome, accept), outcome.decision, outcome.kind == "shadow")
        return self.no

    def refuse_by(self, decision: Decision, accept: str | None) -> No:
        """A limiter of the app's own has refused, in the view: what was charged stays."""
        self.no = No(*self.refuse_for(decision, accept), decision, False)
        return self.no


class Passed:
    """A request that a fast path let pass, of which nothing is open."""

    __slots__ = ("decision", "found", "limits")

    def __init__(self, found: Found[str], decision: Decision, limits: tuple[EndpointLimit, ...]) -> None:
        self.found, self.decision, self.limits = found, decision, limits

    def opened(self, runtime: Runtime[str]) -> Case:
        """The same as a case, for more to be asked."""
        responder, fast_path, _ = self.found
        case = Case(runtime, Entry(responder, fast_path.group if fast_path is not None else None, self.decision, ()))
        case.limits = self.limits
        return case
