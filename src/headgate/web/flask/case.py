"""A case: the docket of one request, ruled on at once."""

from __future__ import annotations

from typing import Final, NamedTuple

from headgate.engine import Decision
from headgate.policy.outcome import Outcome, refused
from headgate.policy.steps import run
from headgate.policy.view import RequestView
from headgate.web.court import Court, Found, Pairs, decide
from headgate.web.docket import Docket, Entry
from headgate.web.door import Door
from headgate.web.route import RouteLimit
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


class Case(Docket[str]):
    """One request. A no has given back what was charged before it."""

    def __init__(self, door: Door[str], first: Entry[str] | None = None) -> None:
        super().__init__(door, first)
        self.limits: tuple[RouteLimit, ...] = ()
        """Of those at endpoints, the ones that were asked."""
        self.no: No | None = None
        self.streams = False
        """It is over when its response has been sent."""

    def front(self, view: RequestView) -> No | None:
        """Rule by the policy in front of the app."""
        found = self.door.fast_paths[view.method, view.path]
        return self._rule(found[0] if found is not None else self.door.court(view), found, view)

    def come_to(self, view: RequestView, limits: tuple[RouteLimit, ...]) -> No | None:
        """Rule by limits at an endpoint, which `view.route` names."""
        self.limits += limits
        found = self.door.fast_path_at(limits, view.route or "", view.method)
        return self._rule(found[0] if found is not None else self.door.court_at(view, limits), found, view)

    def _rule(self, court: Court[str], found: Found[str] | None, view: RequestView) -> No | None:
        fast_path = found[1] if found is not None else None
        if fast_path is not None:
            decision = decide(fast_path, fast_path.keys(view))
            if decision is not None:
                if decision.allowed:
                    self._add(Entry(court, fast_path.group, decision, ()))
                    return None
                return self.refuse(court, refused(fast_path.group, decision), view.accept)
        _, outcome = run(self._compiled(court, view))
        if outcome.kind != "pass":
            return self.refuse(court, outcome, view.accept)
        if outcome.delay_us:
            hold(self, outcome.delay_us)
        return None

    def refuse(self, court: Court[str], outcome: Outcome, accept: str | None) -> No:
        """The request goes no further."""
        run(self.release())
        self.no = No(*court.refuse(outcome, accept), outcome.decision, outcome.kind == "shadow")
        return self.no

    def refuse_by(self, decision: Decision, accept: str | None) -> No:
        """A limiter of the app's own has refused, in the view: what was charged stays."""
        self.no = No(*self.refuse_for(decision, accept), decision, False)
        return self.no


class Passed:
    """A request that a fast path let pass, of which nothing is open."""

    __slots__ = ("decision", "found", "limits")

    def __init__(self, found: Found[str], decision: Decision, limits: tuple[RouteLimit, ...]) -> None:
        self.found, self.decision, self.limits = found, decision, limits

    def opened(self, door: Door[str]) -> Case:
        """The same as a case, for more to be asked."""
        court, fast_path, _ = self.found
        case = Case(door, Entry(court, fast_path.group if fast_path is not None else None, self.decision, ()))
        case.limits = self.limits
        return case
