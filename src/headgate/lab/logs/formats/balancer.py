"""The access logs of an AWS Application Load Balancer."""

from __future__ import annotations

from headgate.lab.logs.formats.requests import method_and_path
from headgate.lab.logs.formats.text import REQUEST, Fields, Part, TextFormat, code
from headgate.lab.logs.request import Row
from headgate.lab.logs.stamps import Memo, date


def balancer(name: str, key: str, wanted: frozenset[str]) -> TextFormat:
    """Return the reader of the access logs of an AWS Application Load Balancer."""
    keys, statuses = Memo(str), Memo(code)

    def build(found: Fields) -> list[Row]:
        return [
            (date(at), keys[who], 1, *((method, path) if method else method_and_path(odd)), statuses[status])
            for at, who, status, method, path, odd in found
        ]

    parts = [
        Part(r"[a-z0-9]+ ", "it does not begin with the type of a connection"),
        Part(r"([0-9TZ:.+-]{1,40}) \S+ ", "it has no date and balancer after the type"),
        Part(r"\[?([0-9A-Fa-f.:]{2,64})\]?:[0-9]+ \S+ ", "it has no client with a port, and no target"),
        Part(r"\S+ \S+ \S+ ([0-9]{3}|-) \S+ \S+ \S+ ", "it has no status after three durations"),
        Part(REQUEST, "it has no request in quotes after the sizes"),
    ]
    return TextFormat(name, parts, build, "user")
