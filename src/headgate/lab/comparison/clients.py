"""The clients of a log, and what the limits remember of those that come near a limit."""

from __future__ import annotations

from headgate.lab.comparison.results import RefusedClient
from headgate.lab.comparison.trailing import History, Trailing
from headgate.lab.logs import Row


class Past:
    """One client's requests of the last period, for one amount per period.

    Until some limit refuses a request, or an exact window would, all limits have passed the same requests: `shared` has
    them, and `parts` is None.
    """

    __slots__ = ("parts", "shared")

    def __init__(self, period: int) -> None:
        self.shared = History(period)
        self.parts: Parts | None = None


class Parts:
    """The past after the first refusal: it differs from limit to limit."""

    __slots__ = ("exact", "offered", "passed")

    def __init__(self, shared: History, limits: int) -> None:
        self.offered, self.exact, *self.passed = (
            Trailing(shared.period, shared.last_period) for _ in range(2 + limits)
        )
        """All requests; those that an exact log of its own passes; for each limit, those that it has passed."""


class Client:
    """One client: its counts over the whole log, and its present visit.

    A visit ends when the client is idle for so long that every limit has forgotten it. As long as its requests that
    some limit may remember fit in every limit, no limit can refuse, and `visit` keeps them. Afterwards `pasts` is kept
    instead.
    """

    __slots__ = (
        "errors", "first", "key", "last", "pasts", "refused", "refused_by", "refused_last", "requests",
        "units", "visit",
    )  # fmt: skip

    def __init__(self, key: str, time: int) -> None:
        self.key = key
        self.requests = self.errors = self.refused = 0
        self.first = self.refused_last = 0
        """The first and the last refusal."""
        self.refused_by = 0
        """The limits that have refused this client, as bits."""
        self.last = time
        self.units = 0
        self.visit: list[Row] = []
        self.pasts: list[Past] | None = None

    def refuse(self, time: int) -> None:
        """Count a refusal by the first limit."""
        if not self.refused:
            self.first = time
        self.refused += 1
        self.refused_last = time

    def result(self) -> RefusedClient:
        """Return the counts as plain data."""
        return RefusedClient(self.key, self.requests, self.refused, self.first, self.refused_last, self.errors)
