"""The decision about a request, as its endpoint sees it: `request.state.rate_limit`, Flask's `g.rate_limit` and so on.

if not request.state.rate_limit:                            # over the limit of a rule with `act: mark`
    return captcha()
request.state.rate_limit.settle(tokens=answer.tokens)       # the real cost of a rule that charged an estimate
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, TypeVar

from headgate.call import checked_cost
from headgate.decision import Decision, tightest
from headgate.errors import InvalidCall
from headgate.policy import Policy
from headgate.policy.edges import FastPath, Outcome, names_of
from headgate.web.endpoint import named_limits
from headgate.web.request_limits import RequestLimits
from headgate.wording import nearest, shown

NOTHING_ASKED: Final[Mapping[str, Any]] = {
    "allowed": True, "limit": None, "remaining": None, "retry_after": None, "reset_after": None, "retry_us": None,
    "reset_us": None, "granted": None, "never": False, "unknown": False, "degraded": False, "binding": None,
    "costs": [], "calls": [], "verdicts": [],
}  # fmt: skip
"""The fields of a decision for a request that no limit was asked about."""


def plain_fields(decision: Decision | None) -> dict[str, Any]:
    """Return the fields of a decision; None if no limit was asked, which leaves all of them None but `allowed`."""
    return dict(NOTHING_ASKED) if decision is None else decision.as_dict()


class RequestDecision:
    """The decision about one request, over every limit that was asked: the policy's and those of the endpoint.

    False if the request is over the limit of a rule with `act: mark`, which lets it pass; then the fields are those of
    that limit. Otherwise they are those of the limit with the least left. They are None if no limit was asked.

    There is no `__init__`, and attributes are set only where they are needed, so they are read by `getattr`: every
    request has one of these, and few endpoints read it.
    """

    __slots__ = ("decided", "limits", "only", "shortcut")

    kind: ClassVar[type[RequestLimits[Any]]]
    """The limits of requests to this app, where a fast path keeps none."""
    shortcut: FastPath
    decided: Decision
    """The only decision, and the fast path that has made it."""
    limits: RequestLimits[Any] | None
    """The limits of the request, where they are kept."""
    only: Sequence[Outcome] | None
    """The outcome of a single `limit(...)`, whose dependency returns its own decision."""

    def __bool__(self) -> bool:
        return self.allowed

    @property
    def decision(self) -> Decision | None:
        """The decision of the limit that the fields describe; None if no limit was asked."""
        refused = [decision for _, decision in self._marked() if decision is not None]
        if refused:
            return max(refused, key=lambda each: each.retry_after)
        passed = [decision for outcome in self._outcomes() for decision in _shown(outcome)]
        if len(passed) < 2:
            return passed[0] if passed else None
        return passed[tightest([each.granted for each in passed], [each.remaining for each in passed])]

    @property
    def marks(self) -> tuple[str, ...]:
        """The names of the rules with `act: mark` whose limit is used up."""
        return tuple(rule.name for rule, _ in self._marked())

    @property
    def allowed(self) -> bool:
        """False if a rule with `act: mark` would refuse the request."""
        return not self._marked()

    @property
    def limit(self) -> int | None:
        """The most that can pass at once."""
        decision = self.decision
        return None if decision is None else decision.limit

    @property
    def remaining(self) -> int | None:
        """The units that are left."""
        decision = self.decision
        return None if decision is None else decision.remaining

    @property
    def retry_after(self) -> float | None:
        """Seconds until the request would be within the limit; 0.0 if it is."""
        decision = self.decision
        return None if decision is None else decision.retry_after

    @property
    def reset_after(self) -> float | None:
        """Seconds until the whole limit is there again."""
        decision = self.decision
        return None if decision is None else decision.reset_after

    @property
    def degraded(self) -> bool:
        """Whether the store was away, so that this process has decided by itself."""
        decision = self.decision
        return decision is not None and decision.degraded

    def as_dict(self) -> dict[str, Any]:
        """Return every field as plain values, as in JSON, and the `marks`."""
        return {**plain_fields(self.decision), "allowed": self.allowed, "marks": list(self.marks)}

    def settle(self, units: Mapping[str, int] | None = None, /, **by_name: int) -> None:
        """Replace the charge by the real cost, once, under the name of a rule or a limit: `settle(tokens=431)`.

        Unused units are given back, and further ones are charged: at once, or when the body of the response is over if
        the store has to be awaited. A charge that is not settled stays. Nothing happens for a rule that does not apply
        to this request.
        """
        if units is not None and not isinstance(units, Mapping):
            raise InvalidCall(
                f"settle needs the name of a rule or a limit, as in settle(tokens=431); got {shown(units)}"
            )
        given = {name: checked_cost(each) for name, each in {**(units or {}), **by_name}.items()}
        if getattr(self, "limits", None) is None and getattr(self, "only", None) is not None:  # no limit was asked
            return
        limits = self._kept()
        for name in given.keys() - limits.names():
            _check_name(limits.runtime, name)
        limits.take_real_costs(given)

    def __repr__(self) -> str:
        marks = f", marked by {', '.join(self.marks)}" if self.marks else ""
        return f"<{RequestDecision.__name__} {self.decision or 'without a limit'}{marks}>"

    def _kept(self) -> RequestLimits[Any]:
        """Return the limits of the request; a fast path keeps none until they are needed."""
        limits: RequestLimits[Any] | None = getattr(self, "limits", None)
        if limits is None:
            limits = self.limits = self.kind()
            if hasattr(self, "shortcut"):
                limits.fast = self.shortcut, self.decided
        return limits

    def _outcomes(self) -> Sequence[Outcome]:
        only: Sequence[Outcome] | None = getattr(self, "only", None)
        return [outcome for _, outcome in self._kept().outcomes()] if only is None else only

    def _marked(self) -> list[tuple[Any, Decision | None]]:
        return [pair for outcome in self._outcomes() for pair in outcome.marked]


def _shown(outcome: Outcome) -> list[Decision]:
    """Return the decisions of an admission that an endpoint sees: not those of rules that only observe."""
    marks = [charge.decision for charge in outcome.charges if charge.group.owners[0].act.kind == "mark"]
    return marks if outcome.decision is None else [outcome.decision, *marks]


Seen = TypeVar("Seen", bound=RequestDecision)


def decision_of(kind: type[RequestLimits[Any]], base: type[Seen]) -> type[Seen]:
    """Return an app's subclass of `RequestDecision`, which saves each request a call of `__init__`."""
    return type(RequestDecision.__name__, (base,), {"kind": kind, "__slots__": ()})


def _check_name(runtime: Any, name: str) -> None:  # noqa: ANN401
    """Raise for a name that no rule and no limit of the app has: it would settle nothing, unnoticed."""
    if not runtime.enabled:  # then the app has no rules
        return
    known = {each for each, _ in named_limits()} | _names_in(runtime.policy)
    for _, responder in runtime.fast_paths_at.opened():
        known |= _names_in(responder.compiled.policy)
    if name not in known:
        near = nearest(name, sorted(known))
        hint = f"did you mean {near}?" if near else f"the names are {', '.join(sorted(known)) or 'none'}"
        raise InvalidCall(f"settle: no rule and no limit has the name {name!r}; {hint}")


def _names_in(policy: Policy) -> set[str]:
    found = set()
    for rule in policy.every_rule:
        found.add(rule.name)
        for limits in (rule.plans or {}).values():
            found.update(name for limit in limits for name in names_of(rule, limit))
    return found
