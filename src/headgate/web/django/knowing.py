"""Lookups about a request before rules read it: in an event loop, rules cannot wait for the database."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any, cast

from headgate.policy import Policy, RequestView
from headgate.policy.edges import Deferred, Rule, Steps
from headgate.web.django.limits import ViewLimit
from headgate.web.django.request import Request, SiteView, told_in_loop
from headgate.web.django.settings import Setup
from headgate.web.endpoint import EndpointLimit
from headgate.web.responder import Responder

Prepare = Callable[[RequestView, Responder[str], tuple[EndpointLimit, ...]], Steps[None]]


def preparing(setup: Setup, awaited: bool) -> Prepare | None:
    """Return the lookups of a site; None if rules can do them all themselves."""
    return partial(_prepare, setup) if awaited or setup.plan_of is not None else None


def _prepare(
    setup: Setup, view: RequestView, responder: Responder[str], limits: tuple[EndpointLimit, ...]
) -> Steps[None]:
    yield _Knowing(setup, cast("SiteView", view), responder.compiled.policy, cast("tuple[ViewLimit, ...]", limits))


class _Knowing(Deferred):
    def __init__(self, setup: Setup, view: SiteView, policy: Policy, limits: tuple[ViewLimit, ...]) -> None:
        self._setup, self._view, self._limits = setup, view, limits
        self._rules = policy.rules_for(view.method, view.path).set.rules
        asks = setup.plan_of is not None and _by_plan(policy, self._rules)
        self._plan_of: Callable[[Request], str | None] | None = setup.plan_of if asks else None

    def now(self) -> None:
        """Look up the plan in a thread, where rules look up the rest when they need it."""
        if self._plan_of is not None:
            self._view.plan = self._plan_of(self._view.request)

    def __await__(self) -> Generator[Any, Any, None]:
        return self._know().__await__()

    async def _know(self) -> None:
        view = self._view
        if any("user" in rule.parts for rule in self._rules):
            view.user = await told_in_loop(self._setup.user_of, view.request)
        if self._plan_of is not None:
            view.plan = await told_in_loop(self._plan_of, view.request)
        for limit in self._limits:
            for function in limit.functions:
                view.known[function] = await told_in_loop(function, view.request)


def _by_plan(policy: Policy, rules: Sequence[Rule]) -> bool:
    """Return whether the decision may depend on the plan; conditions may read it."""
    if policy.allow is not None or policy.deny is not None:
        return True
    return any(
        len(rule.plans or ()) > 1 or "plan" in rule.parts or rule.match.conditions or rule.exempt is not None
        for rule in rules
    )
