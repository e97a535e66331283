"""The fields of questions: each is described once, to read questions and to write the OpenAPI document."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from headgate.errors import InvalidCall
from headgate.policy.edges import read_address
from headgate.wording import shown

LONGEST: Final = 4096
"""Characters of a text: a path, a key, a header."""
LONGEST_LIMIT: Final = 256
LARGEST_COST: Final = 2**53 - 1
MOST_HEADERS: Final = 100
Schema = Mapping[str, Any]


class Field(NamedTuple):
    """A field of a question: what it is for, its JSON Schema, and the function that checks it."""

    about: str
    schema: Schema
    read: Callable[[Any], Any]


def text(least: int = 0, most: int = LONGEST) -> tuple[Schema, Callable[[Any], Any]]:
    """Return schema and reader of a text."""

    def read(value: Any) -> str:  # noqa: ANN401
        if not isinstance(value, str) or not least <= len(value) <= most or not _is_unicode(value):
            raise InvalidCall(f"expected a text of {least} to {most} characters; got {shown(value)}")
        return value

    return {"type": "string", "minLength": least, "maxLength": most}, read


def _is_unicode(value: str) -> bool:
    """Whether a text has no half of a surrogate pair, which JSON can write and UTF-8 cannot."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _cost(value: Any) -> int:  # noqa: ANN401
    whole = int(value) if isinstance(value, float) and value.is_integer() else value  # JSON has one kind of number
    if isinstance(whole, bool) or not isinstance(whole, int) or not 0 <= whole <= LARGEST_COST:
        raise InvalidCall(f"expected a whole number from 0 to {LARGEST_COST}; got {shown(value)}")
    return whole


def _peek(value: Any) -> bool:  # noqa: ANN401
    if not isinstance(value, bool):
        raise InvalidCall(f"expected true or false; got {shown(value)}")
    return value


def _address(value: Any) -> str:  # noqa: ANN401
    found = read_address(value) if isinstance(value, str) else None
    if found is None:
        raise InvalidCall(f"expected an IP address such as 203.0.113.9 or 2001:db8::1; got {shown(value)}")
    return found.text


def _path(value: Any) -> str:  # noqa: ANN401
    found: str = text(1)[1](value)
    if not found.startswith("/"):
        raise InvalidCall(f"expected a path that begins with /; got {shown(value)}")
    return found


def _headers(value: Any) -> list[tuple[bytes, bytes]]:  # noqa: ANN401
    if not isinstance(value, dict) or len(value) > MOST_HEADERS:
        raise InvalidCall(f"expected an object of at most {MOST_HEADERS} headers; got {shown(value)}")
    pairs = []
    for name, lines in value.items():
        if isinstance(lines, list) and len(lines) > MOST_HEADERS:
            raise InvalidCall(f"expected at most {MOST_HEADERS} lines of the header {shown(name)}; got {len(lines)}")
        for line in lines if isinstance(lines, list) else [lines]:
            if not isinstance(line, str) or len(line) > LONGEST:
                raise InvalidCall(f"expected a text, or a list of texts, for the header {shown(name)}")
            pairs.append((name.lower().encode("utf-8", "replace"), line.encode("utf-8", "replace")))
    return pairs


_LINE: Final = {"type": "string", "maxLength": LONGEST}
OF_POLICY: Final[Mapping[str, Field]] = {
    "method": Field("The method of the request. Default: GET.", *text(1, 32)),
    "path": Field(
        "The path as the client sent it, percent-encoded, which may have a query. Default: /.",
        {"type": "string", "minLength": 1, "maxLength": LONGEST, "pattern": "^/"},
        _path,
    ),
    "ip": Field(
        "The address of the client.",
        {"anyOf": [{"type": "string", "format": "ipv4"}, {"type": "string", "format": "ipv6"}]},
        _address,
    ),
    "headers": Field(
        "The headers of the request; a header that came in several lines has a list.",
        {
            "type": "object",
            "maxProperties": MOST_HEADERS,
            "additionalProperties": {"anyOf": [_LINE, {"type": "array", "items": _LINE, "maxItems": MOST_HEADERS}]},
        },
        _headers,
    ),
    "user": Field("The user, for rules that count by user.", *text(1)),
    "plan": Field("The plan of the user, for rules with limits by plan.", *text(1, 256)),
}
"""A question to the policy: the request to rule on."""
OF_LIMIT: Final[Mapping[str, Field]] = {
    "limit": Field("One limit or several, as in 10/second; 1000/hour burst 50.", *text(1, LONGEST_LIMIT)),
    "key": Field("The key to count: a user, an address, an API key.", *text(1)),
    "cost": Field(
        "The number of units. Default: 1.", {"type": "integer", "minimum": 0, "maximum": LARGEST_COST}, _cost
    ),
    "peek": Field("Whether to answer without counting. Default: false.", {"type": "boolean"}, _peek),
}
"""A plain question: a limit and a key, whatever the policy says."""
