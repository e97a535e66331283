"""The JSON Schema (draft 2020-12) of a policy for editors, generated from the parser's tables of fields."""

from __future__ import annotations

from typing import Any, Final, get_args

from headgate.algorithms import EXACT
from headgate.policy import policy_fields as policy
from headgate.policy import rule
from headgate.policy.action import DETAILS, Act
from headgate.policy.cost import COSTS, MATCHED
from headgate.policy.field_types import PERIOD, TEXT, Form, any_case, array, limits_pattern, named, one_of, table
from headgate.policy.header_fields import HEADER_STYLES
from headgate.policy.key import NAMED, WORDS
from headgate.policy.match import FIELDS, METHODS
from headgate.policy.numbers import RANGE
from headgate.policy.secret import PLACES
from headgate.policy.token import PUBLIC, SHARED
from headgate.policy.values import Repeated

_WORD: Final = "[A-Za-z_][A-Za-z0-9_]*"
_SEGMENT: Final = rf"(?:\{{{_WORD}\}}|(?:[^{{}}/*]|\*(?!\*))+)"
_ANY: Final = rf"(?:\*\*|{_SEGMENT})"


_ABOUT: Final = (
    "The limited requests, the keys they are counted by, and the form of a refusal. `headgate policy check FILE` also "
    "finds errors that a schema cannot: names that are used twice, stores that do not exist, limits that do not fit."
)
_PARTS: Final = (
    "ip: the client's address, an IPv6 one by its /64. user: the user that the app names. plan, host, method, path, "
    "route: of the request. everyone: one budget for all requests."
)


def schema() -> dict[str, Any]:
    """Return the whole schema."""
    beside = [field for field in policy.FIELDS if field not in ("version", "rules", "repeated")]
    rules = {"description": "At least one rule, or none and another section.", "minItems": 1}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:headgate:policy:{policy.VERSION}",
        "title": "Headgate policy",
        "description": _ABOUT,
        **table(policy.FIELDS, "rules"),
        "anyOf": [{"properties": {"rules": rules}}, *({"required": [field]} for field in beside)],
        "$defs": _tables() | _values(),
    }


def _tables() -> dict[str, Form]:
    """Return the definitions of objects."""
    return {
        "rule": _rule(),
        "condition": _told("Holds if every field holds; a list of values holds if one of them does.", table(FIELDS)),
        "secret": _told("The place of a secret: a policy must not contain it.", table(PLACES, one=True)),
        "part": _told("One part of a key.", {"anyOf": [_told(_PARTS, one_of(WORDS)), table(NAMED, one=True)]}),
        "costs": _told("Costs by method, and by the response.", table(COSTS)),
        "matched_cost": _told("The cost of requests that fit its match.", table(MATCHED, "cost")),
        "detailed_action": table(DETAILS, one=True),
    }


def _values() -> dict[str, Form]:
    """Return the definitions of words and numbers."""
    return {
        "repeated": one_of(get_args(Repeated)),
        **{f"{kind}_algorithm": one_of(names) for kind, names in (("shared", SHARED), ("public", PUBLIC))},
        "style": _told(
            "draft-11: RateLimit-Policy and RateLimit. draft-6: RateLimit-Limit, -Remaining, -Reset. x-ratelimit: "
            "the same as X-RateLimit-*. x-ratelimit-epoch: the same, with the reset in seconds since the epoch. "
            "none: no such fields.",
            one_of(HEADER_STYLES),
        ),
        "method": {"anyOf": [one_of(METHODS), {"type": "string", "pattern": f"^{any_case(*METHODS)}$"}]},
        "path": _path(),
        "wanted": _told(
            "A value, a list of values, true for any value, false for no value, or below or above a number.",
            {"anyOf": [TEXT, {"type": "boolean"}, array(TEXT), {"minProperties": 1, **table(RANGE)}]},
        ),
        "words": _told(
            "A limit in words: 100/minute burst 20 by gcra block 10m as name, or 20 in flight ttl 10s as name. "
            "Several are separated by ;. Algorithms: token-bucket (the default), gcra, leaky-bucket, "
            "fixed-window, sliding-window, sliding-window/N, sliding-log.",
            {"type": "string", "pattern": limits_pattern()},
        ),
        "limits": _told(
            "Limits in words, one or a list; empty for no limit.",
            {"anyOf": [named("words"), {"enum": ["", None]}, {"type": "array", "items": named("words")}]},
        ),
        "units": {"type": "integer", "minimum": 0, "maximum": EXACT},
        "status_text": {"type": "string", "pattern": "^(?:[1-5][0-9][0-9]|[1-5]xx)$"},
        "status": _told(
            "A status such as 401, or 5xx for all from 500 to 599.",
            {"anyOf": [{"type": "integer", "minimum": 100, "maximum": 599}, named("status_text")]},
        ),
        "action": _told(
            "deny: 429. delay: hold the request until the limit allows it. shadow: send a normal-looking answer "
            "without calling the app. observe: let it pass and log it. mark: let it pass and tell its endpoint.",
            one_of(get_args(Act)),
        ),
        "time": _told("A time such as 10m, 2 hours, 500ms.", {"type": "string", "pattern": rf"^\s*{PERIOD}\s*$"}),
    }


def _rule() -> Form:
    """Return the form of a rule. A rule that delays cannot have `for`."""
    delays = {"anyOf": [{"const": "delay"}, {"type": "object", "required": ["delay"]}]}
    return _told(
        "The requests it applies to, the key it counts by, its limits, and the action when they are used up.",
        table(rule.FIELDS, "key", "limits"),
    ) | {
        "if": {"properties": {"act": delays}, "required": ["act"]},
        "then": {"properties": {"for": False}},
    }


def _path() -> Form:
    """Return the form of a path, as in `policy.path`: at most two `**`, and no name twice."""
    rest = rf"(?:/+{_ANY})*"
    plain = rf"^(?:/+(?:{_ANY}{rest})?|\*\*{rest})/*$"
    open_end = rf"^/+(?:{_SEGMENT}/+)*\{{{_WORD}:path\}}/*$"
    twice = rf"\{{({_WORD})(?::path)?\}}.*\{{\1(?::path)?\}}"
    return _told(
        "Begins with /. * matches any text in a segment, ** any number of segments, {name} one segment "
        "that a key can use, {name:path} the rest, at the end.",
        {
            "type": "string",
            "maxLength": 1024,
            "anyOf": [{"pattern": plain}, {"pattern": open_end}],
            "not": {"anyOf": [{"pattern": r"\*\*.*\*\*.*\*\*"}, {"pattern": twice}]},
        },
    )


def _told(about: str, form: Form) -> Form:
    return {"description": about, **form}
