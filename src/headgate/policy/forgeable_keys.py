"""Rules that count only by values a client can invent: each new value has a new budget, so the rule stops no client.

`headgate policy check` reports them; an app that starts does not. Another rule is enough if the file shows that it
applies to the same requests. Functions are the app's own, and their values are assumed to be safe.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from headgate.policy.cost import Cost
from headgate.policy.policy import Policy
from headgate.policy.rule import Rule
from headgate.policy.rule_limits import DEFAULT_PLAN
from headgate.policy.source import Source

SENT: Final = frozenset({"header", "cookie", "query"})
"""Parts that a client sends. Claims are not among them: all claims are verified."""
ASKED_FOR: Final = frozenset({"path", "param"})
"""Parts that name the requested resource: with another value, a client gets another resource."""
ALWAYS_THERE: Final = frozenset({"ip", "everyone", "method", "constant"})
"""Parts of a key that are never missing because of a client."""
TELLING: Final = frozenset({200, 401, 403})
"""Statuses of responses to an invented key: the app accepts the key or refuses it."""
ENFORCED: Final = ("deny", "delay")

Given = Mapping[str, Any]
"""A rule as it is written in the policy."""


def inventions(source: Source, policy: Policy) -> Iterator[str]:
    """Yield a message for each rule that a client escapes with a new value in each request."""
    given = source.value["rules"]
    sure = [rule for rule in policy.rules if _stops_whom_it_meets(rule, given[rule.index])]
    for rule in policy.rules:
        parts = _invented(given[rule.index])
        if parts and not any(_covers(other, given[other.index], rule, given[rule.index]) for other in sure):
            yield (
                f"{source.where(('rules', rule.index, 'key'))}rule {rule.name}: a client can invent "
                f"{' and '.join(parts)}, and has a new budget with each new value; add a rule by ip for the same "
                "requests, or count by a verified value (user, claim, trusted_header)"
            )


def _parts(given: Given) -> list[tuple[str, str]]:
    """Return kind and name of each part of a key; the name is empty for a part such as `ip`."""
    key = given["key"]
    parts = key if isinstance(key, list | tuple) else [key]
    found = (next(iter(part.items())) if isinstance(part, Mapping) else (part, "") for part in parts)
    return [(kind if isinstance(kind, str) else "function", name) for kind, name in found]


def _match(given: Given) -> Given:
    match = given.get("match", {})
    return match if isinstance(match, Mapping) else {"function": match}


def _invented(given: Given) -> list[str]:
    """Return the names of the parts of a rule's key that a client can invent."""
    match = _match(given)
    return [
        f"{kind} {name}".rstrip()
        for kind, name in _parts(given)
        if (kind == "host" and not _names_hosts(match)) or (kind in SENT and not _names_values(match, kind, name))
    ]


def _names_hosts(match: Given) -> bool:
    hosts = match.get("host", "*")
    return not any("*" in host for host in ([hosts] if isinstance(hosts, str) else hosts))


def _names_values(match: Given, kind: str, name: str) -> bool:
    """Whether the rule applies only to values that its `match` lists."""
    plain = str.lower if kind == "header" else str
    wanted = {plain(str(each)): value for each, value in match.get(kind, {}).items()}
    return not isinstance(wanted.get(plain(name), True), bool)


def _stops_whom_it_meets(rule: Rule, given: Given) -> bool:
    """Whether a rule enforces its limit on every request it applies to, by a key that no client can invent."""
    kinds = {kind for kind, _ in _parts(given)}
    return (
        rule.act.kind in ENFORCED
        and not _invented(given)
        and (rule.missing != "skip" or kinds <= ALWAYS_THERE)
        and (rule.plans is None or bool(rule.plans[DEFAULT_PLAN]))
        and rule.count.requests is None
        and (rule.count.statuses is None or not rule.count.statuses.isdisjoint(TELLING))
        and rule.cost != Cost(0)
    )


def _covers(other: Rule, other_given: Given, rule: Rule, given: Given) -> bool:
    """Whether the other rule applies to every request that this rule applies to, and so bounds it."""
    return (
        other.match.covers(rule.match)
        and (_has_rate(other) or not _has_rate(rule))
        and (_is_one_place(rule) or not any(kind in ASKED_FOR for kind, _ in _parts(other_given)))
        and _conditions(other_given).items() <= _conditions(given).items()
        and other_given.get("exempt") in (None, given.get("exempt"))
    )


def _has_rate(rule: Rule) -> bool:
    return rule.plans is None or any(not limit.in_flight for limits in rule.plans.values() for limit in limits)


def _is_one_place(rule: Rule) -> bool:
    return bool(rule.match.patterns) and not any(mark in each.text for each in rule.match.patterns for mark in "*{")


def _conditions(given: Given) -> dict[str, str]:
    """Return the conditions of a rule beside method and path, in a comparable form."""
    return {field: repr(value) for field, value in _match(given).items() if field not in ("method", "path")}
