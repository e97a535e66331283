"""The part of a policy that a service can apply, and notes on the rest.

A service rules on a request before the app gets it. It never sees the response, nor the end of the request.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final, NamedTuple

from headgate.policy import Policy
from headgate.policy.edges import Rule

IN_THE_APP: Final = "put it into the policy of the app's own middleware"
OF_WEBSOCKETS: Final = frozenset({"WEBSOCKET", "MESSAGE"})
OF_APPS: Final = ("user", "route")
"""Parts of keys that only an app knows."""


class ServicePolicy(NamedTuple):
    """A policy as a service applies it, and a note on each rule that does something else here than in an app."""

    policy: Policy
    notes: tuple[str, ...]


def applied(policy: Policy) -> ServicePolicy:
    """Leave out all that needs a response or the end of a request; say what was left out, and what to do."""
    notes: list[str] = []
    rules = [kept for rule in policy.rules if (kept := _kept(rule, notes)) is not None]
    if policy.shed is not None:
        notes.append(
            "shed: load is shed by how requests end, which this service never sees. It does nothing here: "
            "put the section into the policy of the app's own middleware"
        )
    return ServicePolicy(policy.with_only(rules), tuple(notes))


def _kept(rule: Rule, notes: list[str]) -> Rule | None:
    """Return the rule as it applies here, or None."""
    if rule.follows_response:
        field = "count: {when: {status: ...}}" if rule.count.statuses is not None else "cost: {after: ...}"
        notes.append(
            f"rule {rule.name}: {field} needs the response, which this service never sees. The rule does nothing here: "
            f"{IN_THE_APP}, or remove the field to count every request before it is answered"
        )
        return None
    if rule.match.methods is not None and set(rule.match.methods) <= OF_WEBSOCKETS:
        notes.append(
            f"rule {rule.name}: a proxy asks about a websocket as about any GET, and never about its messages. The "
            f"rule does nothing here: match GET instead, or {IN_THE_APP}"
        )
        return None
    kept = _without_permits(rule, notes) if rule.holds_permits else rule
    if kept is not None:
        notes += _differences(kept)
    return kept


def _without_permits(rule: Rule, notes: list[str]) -> Rule | None:
    """Return a rule without its limits in flight: a permit that is never held, or never released, limits nothing."""
    plans = {
        plan: tuple(limit for limit in limits if not limit.in_flight) for plan, limits in (rule.plans or {}).items()
    }
    left = any(plans.values())
    notes.append(
        f"rule {rule.name}: a limit in flight needs the end of the request, which this service never sees. "
        f"{'That limit' if left else 'The rule'} does nothing here: {IN_THE_APP}, or limit connections at the proxy"
    )
    return replace(rule, plans=plans) if left else None


def _differences(rule: Rule) -> Iterator[str]:
    """Yield notes on a rule that is applied, but not as in an app."""
    if rule.act.kind == "delay":
        yield (
            f"rule {rule.name}: act: delay holds the answer. The proxy must wait longer for it than the rule holds a "
            "request; /v1/check answers at once, and tells the delay"
        )
    if rule.act.kind == "shadow":
        yield (
            f"rule {rule.name}: act: shadow cannot answer in place of the app, since a proxy takes 2xx for a yes. A "
            "request over the limit is refused with 429 here"
        )
    if rule.act.kind == "mark":
        yield (
            f"rule {rule.name}: act: mark tells the endpoint of an app, and a proxy learns nothing of it. A request "
            "over the limit passes here; /v1/check tells the rule in its marks"
        )
    unknown = [part for part in rule.parts if part in OF_APPS]
    if unknown:
        yield (
            f"rule {rule.name}: only an app knows the {' and the '.join(unknown)}. Each request of a proxy is treated "
            f"as the rule says with missing: {rule.missing}; use a header, a cookie or a claim as the key instead"
        )
