"""`Request`: one line of a log, as the lab reads it."""

from __future__ import annotations

from typing import Final, NamedTuple

NOBODY: Final = "-"
"""The key of requests whose log names no client, as servers write it."""

Row = tuple[int, str, int, str, str, int]
"""The values of a `Request`, in its order. A plain tuple is made three times as fast."""


class Request(NamedTuple):
    """One request of a log."""

    time: int
    """Microseconds since the epoch, or since the start of a log whose stamps are small numbers."""
    key: str
    """The client: its address, or the chosen field; `-` where the log has none."""
    cost: int
    """1, or the value of the chosen field."""
    method: str
    """Empty where the log has none, or where the client sent no request line that could be read."""
    path: str
    """The path with its query, as the client sent it; empty like `method`."""
    status: int
    """0 where the log has none."""
