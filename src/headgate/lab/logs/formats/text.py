"""Formats in which a regular expression finds the fields: those of nginx, Apache, Traefik, AWS ALB and Envoy."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from headgate.lab.logs.formats.contract import UnreadableLine
from headgate.lab.logs.formats.requests import client_of, method_and_path, origin_form
from headgate.lab.logs.request import Row
from headgate.lab.logs.stamps import Dates, Memo, date

Fields = list[tuple[str, ...]]
QUOTED: Final = r'[^"\\\n]*(?:\\.[^"\\\n]*)*'
REQUEST: Final = rf'"(?:([A-Z]+) (/[^ "\\\n]*) HTTP/[0-9.]+|({QUOTED}))"'
"""A usual request line in two groups, quickly; any other in a third."""
CLIENT: Final = r"[^\x00-\x20\x7f]{1,1024}"
ENVOY_FIELDS: Final = 5


class Part(NamedTuple):
    """A part of a line, and the reason why a line without it cannot be read."""

    pattern: str
    reason: str


class TextFormat:
    """A format of which a line is a sequence of parts; what follows the last part is left unread."""

    unit = "date"

    def __init__(self, name: str, parts: Sequence[Part], build: Callable[[Fields], list[Row]], lacks: str = "") -> None:
        self.name, self.lacks, self._parts, self._build = name, frozenset(lacks.split()), parts, build
        # One call finds the fields of many lines. No pattern crosses the end of a line.
        self._find = re.compile("^" + "".join(part.pattern for part in parts) + ".*\n", re.MULTILINE).findall

    def rows(self, text: str) -> list[Row]:
        """Read many lines."""
        try:
            return self._build(self._find(text))
        except UnreadableLine:
            return []

    def row(self, line: str) -> Row:
        """Read one line."""
        found = self._find(f"{line}\n")
        if len(found) != 1:
            raise UnreadableLine(self._reason(line))
        return self._build(found)[0]

    def _reason(self, line: str) -> str:
        pattern = ""
        for part in self._parts[:-1]:
            pattern += part.pattern
            if not re.match(pattern, line):
                return part.reason
        return self._parts[-1].reason


def _status(text: str) -> int:
    return 0 if text == "-" else int(text)


def common(name: str, key: str, wanted: frozenset[str]) -> TextFormat:
    """Return the reader of the common log format, and of those that add fields to it."""
    stamps, keys, statuses = Dates(), Memo(str), Memo(_status)
    # A user may have spaces in its name where nothing stands before it but `-`. More fields are another format.
    if key == "user":
        who = rf"{CLIENT} (?:- |\S+ (?=\S+ \[))([^\[\n]{{1,1024}}) "
    else:
        who = rf"({CLIENT}) (?:- - |(?:- |\S+ (?=\S+ \[))[^\[\n]+ )"
    parts = [
        Part(who, "it does not begin with client, identity and user"),
        Part(r"\[([^\]\n]{1,40})\] ", "it has no date in brackets after the user"),
    ]
    status = Part(r" ([0-9]{3}|-)(?= |\r?$)", "it has no status after the request")
    reason = "it has no request in quotes after the date"
    if wanted.isdisjoint({"method", "path"}):

        def build(found: Fields) -> list[Row]:
            return [(stamps[at], keys[who], 1, "", "", statuses[code]) for who, at, code in found]

        return TextFormat(name, [*parts, Part(f'"{QUOTED}"', reason), status], build)

    def build_all(found: Fields) -> list[Row]:
        return [
            (stamps[at], keys[who], 1, method, path, statuses[code])
            if method
            else (stamps[at], keys[who], 1, *method_and_path(odd), statuses[code])
            for who, at, method, path, odd, code in found
        ]

    return TextFormat(name, [*parts, Part(REQUEST, reason), status], build_all)


def balancer(name: str, key: str, wanted: frozenset[str]) -> TextFormat:
    """Return the reader of the access logs of an AWS Application Load Balancer."""
    keys, statuses = Memo(str), Memo(_status)

    def build(found: Fields) -> list[Row]:
        return [
            (date(at), keys[who], 1, *((method, path) if method else method_and_path(odd)), statuses[code])
            for at, who, code, method, path, odd in found
        ]

    parts = [
        Part(r"[a-z0-9]+ ", "it does not begin with the type of a connection"),
        Part(r"([0-9TZ:.+-]{1,40}) \S+ ", "it has no date and balancer after the type"),
        Part(r"\[?([0-9A-Fa-f.:]{2,64})\]?:[0-9]+ \S+ ", "it has no client with a port, and no target"),
        Part(r"\S+ \S+ \S+ ([0-9]{3}|-) \S+ \S+ \S+ ", "it has no status after three durations"),
        Part(REQUEST, "it has no request in quotes after the sizes"),
    ]
    return TextFormat(name, parts, build, "user")


def envoy(name: str, key: str, wanted: frozenset[str]) -> TextFormat:
    """Return the reader of the text that Envoy writes unless told otherwise."""
    keys, statuses = Memo(client_of), Memo(_status)

    def build(found: Fields) -> list[Row]:
        return [
            (date(at), keys[_forwarded(tail)], 1, *_request(method, path), statuses[code])
            for at, method, path, code, tail in found
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
    if len(fields) != ENVOY_FIELDS or '"' in fields[0] or len(fields[0]) > 1024:
        raise UnreadableLine("quotes that its client sent hide where X-Forwarded-For ends")
    return fields[0]
