"""The numeric options of a Redis store: from its arguments, else from its URL, else the defaults."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import parse_qsl, urlencode

from headgate.errors import InvalidCall
from headgate.stores.url import split
from headgate.wording import shown


class Options(NamedTuple):
    """Seconds, and a number of processes. The URL has options of the same names."""

    deadline: float = 0.05
    connect_timeout: float = 0.25
    remember_refusals: float = 1.0
    nodes: int = 1

    def checked(self) -> Options:
        """Return these options, or raise an error that describes the wrong one."""
        for name, least in (("deadline", 1e-6), ("connect_timeout", 1e-6), ("remember_refusals", 0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= 3600:
                raise InvalidCall(f"{name} is a number of seconds from {least} to 3600; got {value!r}")
        if isinstance(self.nodes, bool) or not isinstance(self.nodes, int) or self.nodes < 1:
            raise InvalidCall(f"nodes is a whole number of processes, from 1; got {self.nodes!r}")
        return self


def split_url(url: str) -> tuple[str, dict[str, float | int]]:
    """Return a URL without the options above, and these options."""
    parts = split(url)
    theirs: list[tuple[str, str]] = []
    ours: dict[str, float | int] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name not in Options._fields:
            theirs.append((name, value))
            continue
        try:
            ours[name] = int(value) if name == "nodes" else float(value)
        except ValueError:
            raise InvalidCall(f"{name}={shown(value)} is not a number; write redis://cache:6379?{name}=1") from None
    # Not by urlunsplit, which drops the slashes of unix:///path.
    return f"{parts.scheme}://{parts.netloc}{parts.path}?{urlencode(theirs)}", ours
