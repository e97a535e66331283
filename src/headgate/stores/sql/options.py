"""The numeric options of a SQL store, from its URL or its arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import parse_qsl, urlencode

from headgate.errors import InvalidCall
from headgate.stores.url import split
from headgate.wording import shown

YES = ("1", "true", "yes", "on")


class Options(NamedTuple):
    """Seconds, a number of processes and of connections, and whether keys are stored as they are."""

    deadline: float = 0.25
    connect_timeout: float = 0.25
    max_connections: int = 10
    nodes: int = 1
    readable_keys: bool = False

    def checked(self) -> Options:
        """Return these options, or raise an error that describes the wrong one."""
        for name in ("deadline", "connect_timeout"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 1e-6 <= value <= 3600:
                raise InvalidCall(f"{name} is a number of seconds from 1e-06 to 3600; got {value!r}")
        for name, what in (("nodes", "processes"), ("max_connections", "connections")):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InvalidCall(f"{name} is a whole number of {what}, from 1; got {value!r}")
        return self


def read_options(url: str, given: Mapping[str, object], allowed: tuple[str, ...], example: str) -> tuple[str, Options]:
    """Return the URL without the options of a store, and these options; arguments precede those in the URL."""
    parts = split(url)
    if parts.fragment:
        raise InvalidCall("a password in a URL must be escaped: write %23 for #, %2F for / and %40 for @")
    theirs: list[tuple[str, str]] = []
    ours: dict[str, object] = {}
    for name, text in parse_qsl(parts.query, keep_blank_values=True):
        if name not in allowed:
            theirs.append((name, text))
            continue
        try:
            ours[name] = _read(name, text)
        except ValueError:
            raise InvalidCall(f"{name}={shown(text)} is not a number; write {example}?{name}=1") from None
    said = {name: value for name, value in given.items() if value is not None}
    query = f"?{urlencode(theirs)}" if theirs else ""
    plain = f"{parts.scheme}://{parts.netloc}{parts.path}{query}"
    return plain, Options(**{**ours, **said}).checked()  # type: ignore[arg-type]


def _read(name: str, text: str) -> object:
    if name == "readable_keys":
        return text.lower() in YES
    return int(text) if name in ("nodes", "max_connections") else float(text)
