"""The information that the rules of a policy need and a log does not have."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from headgate.errors import InvalidPolicy
from headgate.limit import LimitWarning, as_limits
from headgate.policy import Policy
from headgate.policy.command import Source

SENT: Final = {"header": "header", "trusted_header": "header", "cookie": "cookie", "claim": "claim"}
"""Names that a client sends and a log does not have, in conditions and in keys."""
NEVER_LOGGED: Final = ("host", "route", "plan")
MIXES: Final = ("any", "all", "not")
LISTS: Final = ("allow", "deny")
SECTIONS: Final = {
    "shed": "a server under load",
    "plan": "the plan of each request; each gets the default one",
}
"""Sections of a policy that a log says nothing about, and what they need."""


def replayable(source: Source, known: frozenset[str]) -> tuple[Policy, dict[str, str]]:
    """Return the policy without the rules that need more than is `known`, and what those need, by their names.

    `known` has `ip` or `user`, and as far as the log has them `method`, `path` and `status`.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LimitWarning)  # `headgate policy check` gives them
        return _replayable(source, known)


def _replayable(source: Source, known: frozenset[str]) -> tuple[Policy, dict[str, str]]:
    whole = Policy(source)  # reports every mistake of the file, with its line
    value = source.value
    kept, skipped = [], {}
    for rule, given in zip(whole.rules, value.get("rules") or (), strict=True):
        lacking = ", ".join(dict.fromkeys(_lacking(given, known)))
        if lacking:
            skipped[rule.name] = lacking
        else:
            kept.append({**{name: each for name, each in given.items() if name != "store"}, "name": rule.name})
    lists = {}
    for name in LISTS:
        lacking = ", ".join(dict.fromkeys(_in_condition(value.get(name), known)))
        if lacking:
            skipped[name] = lacking
        elif name in value:
            lists[name] = value[name]
    skipped |= {name: what for name, what in SECTIONS.items() if name in value}
    if not kept:
        raise InvalidPolicy([f"{source.name}: the log can answer none of its rules: {_listed(skipped)}"])
    return Policy({"rules": kept, **lists}), skipped


def _listed(skipped: Mapping[str, str]) -> str:
    return "; ".join(f"{name} needs {what}" for name, what in skipped.items())


def _lacking(rule: Mapping[str, Any], known: frozenset[str]) -> Iterator[str]:
    for name in ("match", "exempt"):
        yield from _in_condition(rule.get(name), known)
    parts = rule.get("key")
    for part in parts if isinstance(parts, list) else [parts]:
        if isinstance(part, str) and part in ("ip", "user", "host", "route", "plan", "method", "path"):
            if part not in known:
                yield part
        elif isinstance(part, Mapping):
            yield from (f"{SENT[kind]} {name}" for kind, name in part.items() if kind in SENT)
            if part.keys() & {"query", "param"} and "path" not in known:
                yield "path"
    yield from _in_numbers(rule, known)


def _in_numbers(rule: Mapping[str, Any], known: frozenset[str]) -> Iterator[str]:
    """Look into cost, count and limits."""
    cost = rule.get("cost")
    after = cost.get("after", {}) if isinstance(cost, Mapping) else {}
    if after.get("header"):
        yield f"response header {after['header']}"
    if isinstance(cost, Mapping) and cost.keys() - {"after", "default"} and "method" not in known:
        yield "method"
    if ("status" in after or "when" in rule.get("count", {})) and "status" not in known:
        yield "status"
    limits = rule["limits"]
    each = limits.values() if isinstance(limits, Mapping) else [limits]
    if any(limit.in_flight for given in each for limit in as_limits(given, queues=True)):
        yield "the time that requests were in flight"


def _in_condition(value: object, known: frozenset[str]) -> Iterator[str]:
    if isinstance(value, Sequence) and not isinstance(value, str):
        for each in value:
            yield from _in_condition(each, known)
    if not isinstance(value, Mapping):
        return
    for name, wanted in value.items():
        if name in SENT:
            yield from (f"{SENT[name]} {each}" for each in (wanted if isinstance(wanted, Mapping) else ()))
        elif name in MIXES:
            yield from _in_condition(wanted, known)
        elif name in NEVER_LOGGED or (name in ("ip", "method", "path") and name not in known):
            yield name
        elif name == "query" and "path" not in known:
            yield "path"
