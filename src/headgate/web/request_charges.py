"""The charges and permits of a request, from its admission to its end.

The status of the response may change what was charged. Permits are released when the request ends: those of limits in
flight, and that of the app's load shedder, whose latency counts to the start of the response.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, AnyStr, ClassVar, Final, Generic, Literal

from headgate.engine import Decision
from headgate.permit import Outcome as PermitOutcome
from headgate.policy.edges import (
    Charge,
    FastPath,
    Outcome,
    Settled,
    names_of,
    refund,
    release,
    settle,
    settle_by_name,
)
from headgate.shed import ShedPermit
from headgate.steps import Steps, kept, run, run_awaiting, running_loop, start
from headgate.web.responder import Responder

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

FAILED: Final = 500
"""The status that a request without a response counts as."""
TOLD_NOTHING: Final = frozenset({101, 429, 499})
"""Statuses whose latency says nothing: an open websocket, a refusal, a client that has gone."""
TOO_SLOW: Final = frozenset({503, 504})
Decided = tuple[Responder[AnyStr], Outcome]
"""An outcome, and the responder that answers for it."""


class RequestCharges(Generic[AnyStr]):
    """The charges and permits of one request."""

    runtime: ClassVar[Any]
    follows: bool = False
    """Whether the response, or its end, may change what was charged."""
    holds_permits: bool = False
    """Whether the request holds permits until its end."""
    charged: bool = False
    """Whether charges follow the response, beside the permit of a load shedder."""
    fast: tuple[FastPath, Decision] | Literal[False] | None = None
    """The only admission so far, by a fast path; None before any, False if there are several or one took steps."""
    admitted: tuple[Decided[AnyStr], ...] = ()
    """All admissions, if `fast` is False."""
    permit: ShedPermit | None = None
    """The permit of the app's load shedder, while the request holds it."""
    shed_asked = False
    """Whether the load shedder was asked about this request."""
    _permit_outcome: PermitOutcome | None = None
    _counted = False
    _settled: Mapping[Decision, Settled] = MappingProxyType({})
    """Charges that the response or the app has corrected."""
    _told: Mapping[str, int] = MappingProxyType({})
    """Real costs by name that the app has told, and that are charged when the request ends."""
    _over_in: AbstractEventLoop | None = None
    """The event loop in which the request was, once it is over and the store has to be awaited."""

    def outcomes(self) -> tuple[Decided[AnyStr], ...]:
        """Return all admissions."""
        if not self.fast:
            return self.admitted
        fast, decision = self.fast
        return ((fast.responder, Outcome("pass", 200, None, decision, fast.group)),)

    def hold(self, permit: ShedPermit) -> None:
        """Hold the permit of a load shedder until the request ends; views see its class."""
        self.permit = permit
        self.follows = self.holds_permits = True
        permit.show()

    def started(self, status: int) -> None:
        """Tell the load shedder that the response begins: the latency of the request counts to here."""
        if self.permit is not None:
            self._permit_outcome = outcome_of(status)
            self.permit.answered(self._permit_outcome)

    def take_no_sample(self) -> None:
        """Let the latency of this request say nothing: its client sends a stream, and may take its time."""
        if self.permit is not None:
            self.permit.answered("ignored")

    def let_go(self) -> None:
        """Give the permit of the load shedder back."""
        permit, self.permit = self.permit, None
        if permit is not None:
            permit.hide()
            permit.release(self._permit_outcome or outcome_of(FAILED))
            self.follows = self.holds_permits = self.charged

    def after(self, status: int, header: Callable[[str], str | None]) -> Steps[None]:
        """Settle the charges by the response's status and headers, once; later calls change nothing."""
        if not self._counted:
            self._counted, self.follows = True, self.holds_permits
            if self.permit is not None:
                self.started(status)
            if self._told:
                yield from self._settle_told()
            for _, outcome in self.admitted:
                for charge in outcome.charges:
                    if charge.group.follows:
                        settled = yield from settle(charge, self._settled.get(charge.decision), status, header)
                        self._settled = {**self._settled, charge.decision: settled}

    def end(self, status: int = FAILED, header: Callable[[str], str | None] = lambda name: None) -> Steps[None]:
        """End the request: settle it if no response did, by default as failed, and release its permits."""
        yield from self.after(status, header)
        yield from self.release()

    def take_real_costs(self, units: Mapping[str, int]) -> None:
        """Take the real costs by name: at once; with a store that has to be awaited, with the response."""
        if self.fast:
            self.admitted, self.fast = self.outcomes(), False  # the header fields show what is left afterwards
        if not self.runtime.awaits:
            run(self._settle_by_name(units))
            return
        if self._over_in is not None:
            self._over_in.call_soon_threadsafe(self._settle_late, units)
            return
        self._told = {**units, **self._told}
        self.follows = self.holds_permits = self.charged = True  # then the edge calls `after` and `release`

    def over(self, loop: AbstractEventLoop | None = None) -> None:
        """Note that the request is over, with a store that is awaited; its body may end later, if its client has gone.

        A framework then drops its generator, and a `settle` in the `finally` of that comes after all else.
        """
        self._over_in = loop or running_loop()

    def _settle_late(self, units: Mapping[str, int]) -> None:
        kept(start(run_awaiting(self._settle_by_name(units))))

    def _settle_told(self) -> Steps[None]:
        told, self._told = self._told, MappingProxyType({})
        yield from self._settle_by_name(told)

    def _settle_by_name(self, units: Mapping[str, int]) -> Steps[None]:
        for charge in self.charges():
            if not charge.group.looks:  # such a group charges nothing
                settled = yield from settle_by_name(charge, self._settled.get(charge.decision), units)
                self._settled = {**self._settled, charge.decision: settled}

    def charges(self) -> list[Charge]:
        """Return every charge of the request."""
        found: list[Charge] = []
        for _, outcome in self.outcomes():
            found += [charge for charge in outcome.charges if charge.decision is not outcome.decision]
            if outcome.group is not None and outcome.decision is not None:
                found.append(Charge(outcome.group, outcome.decision))
        return found

    def names(self) -> set[str]:
        """Return the names under which the app can tell the real costs of this request."""
        asked = [pair for group, _ in self.charges() for pair in zip(group.owners, group.limits, strict=True)]
        return {name for rule, limit in asked for name in names_of(rule, limit)}

    def release(self) -> Steps[None]:
        """Release the permits of the request, and charge the real costs that the app has told."""
        if self._told:
            yield from self._settle_told()
        if self.holds_permits:
            self.charged = False
            if self.permit is not None:
                self.let_go()
            self.holds_permits = self.follows = False
            for _, outcome in self.admitted:
                yield from release(outcome.charges)

    def refund(self, keeps_permit: bool = False) -> Steps[None]:
        """Give back all charges: the request goes no further, or is decided on anew, perhaps with the same permit."""
        every, self.admitted, self.fast = self.charges(), (), None
        self.charged = False
        self.shed_asked = self.follows = self.holds_permits = keeps_permit
        if self.permit is not None and not keeps_permit:
            self.let_go()
        yield from refund(every)


def outcome_of(status: int) -> PermitOutcome:
    """Return how a request went, for a load shedder: a quick failure must not look like speed."""
    if status < FAILED:
        return "ignored" if status in TOLD_NOTHING else "success"
    return "dropped" if status in TOO_SLOW or isinstance(sys.exception(), TimeoutError) else "ignored"
