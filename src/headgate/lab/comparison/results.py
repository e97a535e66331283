"""The results of a comparison: frozen values. `str` of a `Comparison` is the table that the command prints."""

from __future__ import annotations

from dataclasses import dataclass, field

from headgate.lab.logs import LogFacts
from headgate.limit import Limit


@dataclass(frozen=True, slots=True)
class Wrong:
    """Answers that differ from those of an exact window."""

    passed: int
    """Requests that passed although the exact window was full."""
    refused: int
    """Requests that were refused although the exact window had room."""


@dataclass(frozen=True, slots=True)
class Waits:
    """The waits of the requests that a queue admitted: in seconds, rounded up to a millisecond."""

    median: float
    p99: float
    most: float


@dataclass(frozen=True, slots=True)
class Measured:
    """One limit over all requests."""

    limit: Limit
    refused: int
    """Requests that were refused; of a queue, dropped."""
    clients: int
    """Clients that were refused at least once."""
    most: int
    """The most units of one client that passed in any period."""
    same_past: Wrong | None
    """Against an exact window over the requests that this limit itself has passed; None for queues."""
    own_past: Wrong | None
    """Against an exact log that decides for itself from the first request on; None for queues."""
    offered: Wrong | None
    """For windows: the estimate over all requests, refused ones too, against their true number. None for other
    algorithms, and where a client sends more than the window can count."""
    bytes: int
    """Bytes of one client's state in memory, with the fingerprint of its key."""
    nanoseconds: int = field(compare=False)
    """The measured time of one decision on this machine."""
    waits: Waits | None = None
    """For queues."""
    forgotten: int = 0
    """Clients whose state had to be dropped for lack of memory: above 0, the other figures are not exact."""

    @property
    def above(self) -> float:
        """The most that passed in a period, as a multiple of the amount."""
        return self.most / self.limit.amount


@dataclass(frozen=True, slots=True)
class RefusedClient:
    """A client that the first limit has refused."""

    key: str
    requests: int
    refused: int
    first: int
    """The time of its first refusal, in microseconds since the epoch."""
    last: int
    errors: int
    """Requests of this client that the server answered with an error, 400 to 599."""


@dataclass(frozen=True, slots=True)
class Series:
    """The requests over time, in bins of equal length."""

    start: int
    """The start of the first bin, in microseconds since the epoch."""
    width: int
    """The length of a bin in microseconds."""
    offered: tuple[int, ...]
    """Requests in each bin."""
    refused: tuple[tuple[int, ...], ...]
    """For each limit, the refused requests in each bin."""
    above: tuple[tuple[int, ...], ...]
    """For each limit and bin, how far the most that one client passed in a period was above the amount; 0 if not."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The same requests through several limits."""

    limits: tuple[Measured, ...]
    requests: int
    clients: int
    first: int
    """The times of the first and of the last request, in microseconds since the epoch; 0 without requests."""
    last: int
    refused_most: tuple[RefusedClient, ...]
    """The clients that the first limit refused most, at most ten."""
    series: Series
    log: LogFacts | None
    """The log; None for requests from elsewhere."""
    remarks: tuple[str, ...] = ()

    def table(self, wrong: str = "same") -> str:
        """Return the text for a terminal; `wrong` chooses the measure of wrong answers: `same`, `own`, `offered`."""
        from headgate.lab.comparison.table import table

        return table(self, wrong)

    def __str__(self) -> str:
        return self.table()
