"""The values that a request gives under one name: every one of them, in a form that does not depend on the framework.

A name can be sent twice, and a value can be written in many ways. Frameworks differ: some read the first value, some
the last, some join them. A request is counted by a value only where every framework reads that value. `Unclear` is
raised where frameworks may differ, and the request is refused.

A plain form depends only on the value that an app sees, so a caller gets no second budget by another spelling of one
value. Two values with the same plain form share a budget, which gives no caller more.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, Literal, NamedTuple
from urllib.parse import unquote

Repeated = Literal["refuse", "first", "last", "each"]
LONGEST: Final = 65_536
"""Characters of a query or of cookies. Servers admit 8 to 64 KiB. A request with more is refused, not read in part."""
MOST_VALUES: Final = 16
"""The most values of one name that are counted. A request with more is refused: each value is a charge."""
CREDENTIALS: Final = ("authorization", "proxy-authorization")
_CHARSET: Final = re.compile(r"charset(\*?)[ \t]*=([^;]*)")
_BEYOND_ASCII: Final = re.compile(r"%[89A-Fa-f]|[^\x00-\x7F]")
_LIKE_UTF_8: Final = ("utf-8", "utf8")
_LIKE_UTF_8_IN_ASCII: Final = ("us-ascii", "iso-8859-1", "iso-8859-15", "windows-1252")
_ESCAPED: Final = re.compile(r"\\(?:([0-3][0-7][0-7])|(.))")


class Unclear(Exception):
    """A request that cannot be counted, as frameworks may read it differently. It is refused with 400."""

    def __init__(self, field: str, why: str) -> None:
        super().__init__(f"The {field} {why}.")
        self.reason = f"the {field} {why}"
        """The message for use inside a sentence."""


class Kind(NamedTuple):
    """A place where requests have values under names."""

    word: str
    """The name in messages: `header`."""
    plain: Callable[[str], str | None]
    """Return a value as every framework reads it; None if frameworks disagree."""
    readings: Callable[[str], Sequence[str]]
    """Return every reading of a value on which frameworks disagree."""
    wanted: Callable[[str], str]
    """Convert a word of the policy for comparison with plain values."""

    def one(self, name: str, values: Sequence[str], repeated: Repeated) -> str:
        """Return one of several values, as it was sent: they are equal, or `repeated` chooses one."""
        if repeated == "first":
            return values[0]
        if repeated == "last":
            return values[-1]
        if len({self.said(name, value) for value in values}) > 1:
            raise Unclear(f"{self.word} {name}", "was sent more than once, with different values")
        return values[0]

    def said(self, name: str, value: str) -> str:
        """Return the plain form of a value; raise `Unclear` if it has none."""
        plain = self.plain(value)
        if plain is None:
            raise Unclear(f"{self.word} {name}", "has a value that frameworks read differently")
        return plain

    def may_be(self, value: str) -> Sequence[str]:
        """Return every reading that some framework may have."""
        plain = self.plain(value)
        return self.readings(value) if plain is None else (plain,)


def _bytes(text: str) -> bytes:
    """Return the bytes that were sent: servers decode them as latin-1, aiohttp as UTF-8."""
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogateescape")


def as_text(value: str) -> str:
    """Decode a value as UTF-8 if it is valid UTF-8, otherwise as latin-1."""
    if value.isascii():
        return value
    raw = _bytes(value)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def _header(value: str) -> str:
    text = value.strip()
    return text if text.isascii() else as_text(text).strip()


def credentials(value: str) -> str:
    """Return credentials in one spelling: the case of the scheme, spaces and the spelling of base64 do not matter."""
    if value[:7] == "Bearer " and value.isascii() and value[7:8] > " " and value[-1] > " ":
        return value  # the common spelling
    words = value.split(None, 1)
    if len(words) < 2:
        return _header(value)
    scheme, rest = as_text(words[0]).capitalize(), _header(words[1])
    if scheme == "Basic":
        with suppress(ValueError):
            rest = b64decode(rest).decode("latin-1")
    return f"{scheme} {rest}"


def _parameter(value: str) -> str | None:
    """Decode a query value; None for bytes that are not ASCII, or escapes that are not UTF-8."""
    if not value.isascii():
        return None
    if "+" in value:
        value = value.replace("+", " ")
    if "%" in value:
        try:
            value = unquote(value, errors="strict")
        except UnicodeDecodeError:
            return None
    return value.strip()


def _readings_of_parameter(value: str) -> Sequence[str]:
    raw = unquote(_bytes(value.replace("+", " ")).decode("latin-1"), encoding="latin-1")
    return [_bytes(raw).decode("utf-8", "replace").strip(), raw.strip()]


def reads_as_utf_8(query: str, content_type: str) -> bool:
    """Whether a query is read as UTF-8 everywhere: Django reads it in the charset that a client declares for the body.

    In UTF-7, `%2BAGE-nn` is `ann`, so one value would have many budgets. Only charsets for which this is impossible are
    accepted: Django finds a charset by more spellings than are listed here.
    """
    declared = content_type.lower()
    found = _CHARSET.findall(declared)
    if len(found) < declared.count("charset"):
        return False
    for encoded, text in found:
        name = text.strip(" \t").removeprefix('"').removesuffix('"')
        if encoded or not (
            name in _LIKE_UTF_8 or (name in _LIKE_UTF_8_IN_ASCII and _BEYOND_ASCII.search(query) is None)
        ):
            return False
    return True


def parameters(query: str) -> dict[str, list[str]]:
    """Return the values of a query as they were sent, by decoded name. Every framework splits at `&` only."""
    found: dict[str, list[str]] = {}
    for pair in query.split("&"):
        name, _, value = pair.partition("=")
        if "%" in name or "+" in name or not name.isascii():
            name = as_text(unquote(name.replace("+", " "), encoding="latin-1"))
        found.setdefault(name, []).append(value)
    return found


def _cookie(value: str) -> str | None:
    """Decode a cookie's quotes, escapes and percent signs; None for a value that RFC 6265 does not allow."""
    if not value.isascii():
        return None
    value = value.strip()
    if value[:1] == '"' or value[-1:] == '"':
        if len(value) < 2 or value[0] != value[-1]:
            return None
        value = _ESCAPED.sub(_unescaped, value[1:-1]) if "\\" in value else value[1:-1]
        if not value.isascii():
            return None
    elif len(value.split(None, 1)) > 1:  # some frameworks end the value at a space
        return None
    return unquote(value).strip() if "%" in value else value.strip()


def _unescaped(found: re.Match[str]) -> str:
    return chr(int(found[1], 8)) if found[1] else found[2]


def _readings_of_cookie(value: str) -> Sequence[str]:
    texts = {value.strip(), as_text(value).strip(), as_text(value.strip())}
    texts |= {text.split(None, 1)[0] for text in texts if text}
    texts |= {_ESCAPED.sub(_unescaped, text.strip('"')) for text in texts}
    return [*texts, *map(unquote, texts)]


def cookies(lines: Sequence[str], name: str) -> list[str]:
    """Return the values of a cookie from all lines: HTTP/2 sends each cookie in a line of its own.

    Values that only some frameworks see are included: some split cookies at spaces or ignore quotes.
    """
    found: list[str] = []
    for line in lines:
        if name in line:
            for pair in line.split(";"):
                if name in pair:
                    found += _named(pair, name)
    return found


def _named(pair: str, name: str) -> list[str]:
    field, _, value = pair.partition("=")  # without `=`, some frameworks read an empty value
    if name in (field.strip(), as_text(field).strip()):
        return [value] if name not in value else [value, *_inside(pair.lstrip(), name)]
    return _inside(pair, name)


def _inside(pair: str, name: str) -> list[str]:
    return re.findall(rf"[\s,\"]{re.escape(name)}\s*=\s*([^\s;]*)", pair)


HEADER: Final = Kind("header", _header, lambda value: (), _header)
CREDENTIAL: Final = Kind("header", credentials, lambda value: (), credentials)
QUERY: Final = Kind("query parameter", _parameter, _readings_of_parameter, str.strip)
COOKIE: Final = Kind("cookie", _cookie, _readings_of_cookie, lambda word: _cookie(word) or word)


def kind_of_header(name: str) -> Kind:
    """Return the kind of a header: credentials are compared in their own way."""
    return CREDENTIAL if name in CREDENTIALS else HEADER
