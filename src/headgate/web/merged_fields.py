"""The header fields of several decisions about one request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import AnyStr, Final

from headgate.decision import tightest
from headgate.engine import Decision
from headgate.policy.edges import LimitGroup
from headgate.web.responder import Pairs, Responder

LISTS: Final = frozenset(("ratelimit", "ratelimit-policy"))
"""Fields that list several decisions; the other fields show the tightest decision only."""
GroupDecision = tuple[Responder[AnyStr], LimitGroup, Decision]
"""The responder that writes the fields, the limits, and the decision over them."""


def merged_fields(told: Sequence[GroupDecision[AnyStr]]) -> Pairs[AnyStr]:
    """Return the fields of all decisions."""
    decisions = [decision for _, _, decision in told]
    nearest = tightest([each.granted for each in decisions], [each.remaining for each in decisions])
    fields: dict[AnyStr, AnyStr] = {}
    for at, (responder, group, decision) in enumerate(told):
        codec = responder.codec
        for name, value in responder.fields(group, decision):
            if codec.text(name).lower() not in LISTS:
                if at == nearest:
                    fields[name] = value
            elif name in fields:
                fields[name] = codec.value(f"{codec.text(fields[name])}, {codec.text(value)}")
            else:
                fields[name] = value
    return list(fields.items())
