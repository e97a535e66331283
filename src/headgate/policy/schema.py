"""The schema of a policy (JSON Schema, draft 2020-12), made of the fields that the parser knows: for editors."""

from __future__ import annotations

from typing import Any, Final, get_args

from headgate.algorithms.contract import EXACT
from headgate.policy import policy, rule
from headgate.policy.action import DETAILS, Act
from headgate.policy.cost import COSTS
from headgate.policy.forms import PERIOD, TEXT, Form, any_case, array, limits_pattern, named, one_of, table
from headgate.policy.key import NAMED, WORDS
from headgate.policy.match import FIELDS, METHODS
from headgate.policy.secret import PLACES
from headgate.policy.token import PUBLIC, SHARED
from headgate.policy.values import Repeated

_WORD: Final = "[A-Za-z_][A-Za-z0-9_]*"
_SEGMENT: Final = rf"(?:\{{{_WORD}\}}|(?:[^{{}}/*]|\*(?!\*))+)"
_ANY: Final = rf"(?:\*\*|{_SEGMENT})"


_ABOUT: Final = (
    "Who is limited, by what, and what a no looks like. `headgate policy check FILE` finds more than a schema can say: "
    "names that are used twice, stores that do not exist, limits that do not fit."
)
_PARTS: Final = (
    "ip: the client's address, an IPv6 one by its /64. user: who the app says it is. plan, host, method, path, route: "
    "of the request. everyone: one budget for all."
)


def schema() -> dict[str, Any]:
    """All of it."""
    beside = [field for field in policy.FIELDS if field not in ("version", "rules", "repeated")]
    rules = {"description": "At least one rule, or another section beside none.", "minItems": 1}
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
    """Of fields."""
    return {
        "rule": _rule(),
        "condition": _told("Holds when every field does; a list of values when one of them does.", table(FIELDS)),
        "secret": _told("Where a secret is: a policy is no place for one.", table(PLACES, one=True)),
        "part": _told("One part of a key.", {"anyOf": [_told(_PARTS, one_of(WORDS)), table(NAMED, one=True)]}),
        "costs": _told("By method, and by what the response says.", table(COSTS)),
        "detailed_action": table(DETAILS, one=True),
    }


def _values() -> dict[str, Form]:
    """Of words and numbers."""
    return {
        "repeated": one_of(get_args(Repeated)),
        "shared_algorithm": one_of(SHARED),
        "public_algorithm": one_of(PUBLIC),
        "style": _told(
            "draft-11: RateLimit-Policy and RateLimit. draft-6: RateLimit-Limit, -Remaining, -Reset. x-ratelimit: "
            "the same as X-RateLimit-*. x-ratelimit-epoch: the reset in seconds since the epoch. none: none of "
            "these.",
            one_of(policy.HEADER_STYLES),
        ),
        "method": {"anyOf": [one_of(METHODS), {"type": "string", "pattern": f"^{any_case(*METHODS)}$"}]},
        "path": _path(),
        "wanted": _told(
            "A value, a list of values, true for any, false for none.",
            {"anyOf": [TEXT, {"type": "boolean"}, array(TEXT)]},
        ),
        "words": _told(
            "A limit in words: 100/minute burst 20 by gcra block 10m as name, or 20 in flight ttl 10s as name. "
            "Several are separated by ;. Algorithms: token-bucket (the default), gcra, leaky-bucket, "
            "fixed-window, sliding-window, sliding-window/N, sliding-log.",
            {"type": "string", "pattern": limits_pattern()},
        ),
        "limits": _told(
            "Limits in words, one or a list; nothing for no limit.",
            {"anyOf": [named("words"), {"enum": ["", None]}, {"type": "array", "items": named("words")}]},
        ),
        "units": {"type": "integer", "minimum": 0, "maximum": EXACT},
        "status_text": {"type": "string", "pattern": "^(?:[1-5][0-9][0-9]|[1-5]xx)$"},
        "status": _told(
            "A status such as 401, or 5xx for all from 500 to 599.",
            {"anyOf": [{"type": "integer", "minimum": 100, "maximum": 599}, named("status_text")]},
        ),
        "action": _told(
            "deny: 429. delay: hold the request until its turn. shadow: an answer that looks like any other, "
            "without the app. observe: let it through and say so in the log.",
            one_of(get_args(Act)),
        ),
        "time": _told("A time such as 10m, 2 hours, 500ms.", {"type": "string", "pattern": rf"^\s*{PERIOD}\s*$"}),
    }


def _rule() -> Form:
    """A rule that delays does not block."""
    delays = {"anyOf": [{"const": "delay"}, {"type": "object", "required": ["delay"]}]}
    return _told(
        "To whom it applies, what it counts by, how much is allowed, and what happens when that is over.",
        table(rule.FIELDS, "key", "limits"),
    ) | {
        "if": {"properties": {"act": delays}, "required": ["act"]},
        "then": {"properties": {"for": False}},
    }


def _path() -> Form:
    """What policy.path reads: at most two `**`, and no name twice."""
    rest = rf"(?:/+{_ANY})*"
    plain = rf"^(?:/+(?:{_ANY}{rest})?|\*\*{rest})/*$"
    open_end = rf"^/+(?:{_SEGMENT}/+)*\{{{_WORD}:path\}}/*$"
    twice = rf"\{{({_WORD})(?::path)?\}}.*\{{\1(?::path)?\}}"
    return _told(
        "Begins with /. * is anything within a segment, ** any number of whole segments, {name} one segment "
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
