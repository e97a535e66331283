"""The text that Envoy writes unless told otherwise."""

from __future__ import annotations

from typing import Final

from headgate.lab.logs.formats.contract import UnreadableLine
from headgate.lab.logs.formats.requests import client_of, origin_form
from headgate.lab.logs.formats.text import Fields, Part, TextFormat, code
from headgate.lab.logs.request import Row
from headgate.lab.logs.stamps import Memo, date

QUOTED_FIELDS: Final = 5
"""X-Forwarded-For, agent, request, authority and upstream, at the end of a line."""


def envoy(name: str, key: str, wanted: frozenset[str]) -> TextFormat:
    """Return the reader of the text that Envoy writes unless told otherwise."""
    keys, statuses = Memo(client_of), Memo(code)

    def build(found: Fields) -> list[Row]:
        return [
            (date(at), keys[_forwarded(tail)], 1, *_request(method, path), statuses[status])
            for at, method, path, status, tail in found
        ]

    parts = [
        Part(r"\[([0-9TZ:.+-]{1,40})\] ", "it does not begin with a date in brackets"),
        Part(r'"(\S*) (\S*) \S*" ', "it has no request in quotes after the date"),
        Part(r"([0-9]{1,3}|-) \S+ \S+ \S+ \S+ \S+ ", "it has no status, flags, sizes and durations"),
        Part(r'"(.*)"', "it has no quoted fields at its end"),
    ]
    return TextFormat(name, parts, build, "user")


def _request(method: str, path: str) -> tuple[str, str]:
    return ("" if method == "-" else method, "" if path == "-" else origin_form(path))


def _forwarded(tail: str) -> str:
    """Return X-Forwarded-For. Envoy does not escape quotes, so that clients could write fields of their own."""
    fields = tail.split('" "')
    if len(fields) != QUOTED_FIELDS or '"' in fields[0] or len(fields[0]) > 1024:
        raise UnreadableLine("quotes that its client sent hide where X-Forwarded-For ends")
    return fields[0]
