"""The header fields that show how much is left: a style, or names of the app's own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from headgate.policy.field_types import Field, Fields, Form, array, named, table
from headgate.policy.parser import Parser
from headgate.wording import shown

HEADER_STYLES: Final = ("draft-11", "draft-6", "x-ratelimit", "x-ratelimit-epoch", "none")
NAME: Final = "[A-Za-z0-9-]{1,64}"
TAKEN: Final = frozenset({
    "cache-control", "connection", "content-encoding", "content-length", "content-type", "date", "keep-alive",
    "location", "retry-after", "set-cookie", "te", "trailer", "transfer-encoding", "upgrade", "www-authenticate",
})  # fmt: skip
"""Fields that frame a response or that a refusal has: a number under their name would break it."""
_NAMED: Final[Form] = {"type": "string", "pattern": f"^{NAME}$"}
FIELD_NAMES: Final[Fields] = {
    "limit": Field("The field with the most that can pass at once.", _NAMED),
    "remaining": Field("The field with what is left.", _NAMED),
    "reset": Field("The field with the seconds until all of it is there again.", _NAMED),
}
STYLES: Final[Form] = {
    "anyOf": [
        {"minProperties": 1, **table(FIELD_NAMES)},
        named("style"),
        array(named("style")) | {"maxItems": 1},
        {
            "type": "array",
            "minItems": 2,
            "uniqueItems": True,
            "items": {"allOf": [named("style"), {"not": {"const": "none"}}]},
            "not": {"allOf": [{"contains": {"const": style}} for style in ("x-ratelimit", "x-ratelimit-epoch")]},
        },
    ]
}


class FieldNames(NamedTuple):
    """Names of the app's own; an empty one is not sent."""

    limit: str
    remaining: str
    reset: str


HeaderStyle = str | FieldNames


def read_headers(parser: Parser, value: object) -> tuple[HeaderStyle, ...]:
    """Read a policy's `headers`."""
    if isinstance(value, Mapping):
        return _read_names(parser, value)
    styles = parser.words(value, ("headers",), "a style of headers")
    known = tuple(style for style in styles if parser.one_of(style, ("headers",), HEADER_STYLES))
    families = ["x-ratelimit" if style.startswith("x-ratelimit") else style for style in known]
    if len(set(families)) < len(families) or ("none" in known and len(known) > 1):
        parser.error(
            ("headers",),
            f"two styles write the same fields, or none is combined with another; got {shown(value)}",
        )
    return known


def _read_names(parser: Parser, value: Mapping[str, Any]) -> tuple[HeaderStyle, ...]:
    given = parser.fields(value, ("headers",), FIELD_NAMES)
    for name, field in given.items():
        if not isinstance(field, str) or not re.fullmatch(NAME, field):
            parser.error(("headers", name), f"expected the name of a field, as in X-Calls-Left; got {shown(field)}")
        elif field.lower() in TAKEN:
            parser.error(("headers", name), f"responses have a field {field} already; choose a name of your own")
    if len({str(field).lower() for field in given.values()}) < len(given) or not given:
        parser.error(("headers",), f"expected different names of fields; got {shown(value)}")
    return (FieldNames(*(str(given.get(name, "")) for name in FieldNames._fields)),)
