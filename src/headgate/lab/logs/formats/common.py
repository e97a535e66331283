"""The common log format, and those that add fields to it: of nginx, Apache and Traefik."""

from __future__ import annotations

from typing import Final

from headgate.lab.logs.formats.requests import method_and_path
from headgate.lab.logs.formats.text import QUOTED, REQUEST, Fields, Part, TextFormat, code
from headgate.lab.logs.request import Row
from headgate.lab.logs.stamps import Dates, Memo

CLIENT: Final = r"[^\x00-\x20\x7f]{1,1024}"


def common(name: str, key: str, wanted: frozenset[str]) -> TextFormat:
    """Return the reader of the common log format, and of those that add fields to it."""
    stamps, keys, statuses = Dates(), Memo(str), Memo(code)
    # A user may have spaces in its name where nothing stands before it but `-`. More fields are another format.
    if key == "user":
        who = rf"{CLIENT} (?:- |\S+ (?=\S+ \[))([^\[\n]{{1,1024}}) "
    else:
        who = rf"({CLIENT}) (?:- - |(?:- |\S+ (?=\S+ \[))[^\[\n]+ )"
    parts = [
        Part(who, "it does not begin with client, identity and user"),
        Part(r"\[([^\]\n]{1,40})\] ", "it has no date in brackets after the user"),
    ]
    result = Part(r" ([0-9]{3}|-)(?= |\r?$)", "it has no status after the request")
    reason = "it has no request in quotes after the date"
    if wanted.isdisjoint({"method", "path"}):

        def build(found: Fields) -> list[Row]:
            return [(stamps[at], keys[who], 1, "", "", statuses[status]) for who, at, status in found]

        return TextFormat(name, [*parts, Part(f'"{QUOTED}"', reason), result], build)

    def build_all(found: Fields) -> list[Row]:
        return [
            (stamps[at], keys[who], 1, method, path, statuses[status])
            if method
            else (stamps[at], keys[who], 1, *method_and_path(odd), statuses[status])
            for who, at, method, path, odd, status in found
        ]

    return TextFormat(name, [*parts, Part(REQUEST, reason), result], build_all)
