"""The clients of a log, and what the limits remember of those that come near a limit."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from headgate.lab.comparison.bins import Bins
from headgate.lab.comparison.results import RefusedClient
from headgate.lab.comparison.trailing import History
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
    """The past after the first refusal: it differs from limit to limit.

    Most requests are still passed by all or refused by all, so that units are counted once for all where they can be.
    """

    __slots__ = ("_uses", "elsewhere", "everywhere", "offered")

    def __init__(self, shared: History, limits: int) -> None:
        self._uses: deque[tuple[int, int, Sequence[int] | None]] = deque((*use, None) for use in shared.last_period)
        """The time and the cost of each request, and the places that passed it; None for all of them."""
        self.offered = self.everywhere = sum(cost for _, cost in shared.last_period)
        """Units of all requests, and of those that passed everywhere."""
        self.elsewhere = [0] * (limits + 1)
        """The other units that each limit has passed and, at the end, an exact log that decides for itself."""

    def forget(self, until: int) -> None:
        """Forget the uses up to this instant."""
        uses = self._uses
        while uses and uses[0][0] <= until:
            _, cost, places = uses.popleft()
            self.offered -= cost
            if places is None:
                self.everywhere -= cost
            else:
                for place in places:
                    self.elsewhere[place] -= cost

    def add(self, time: int, cost: int, places: Sequence[int] | None) -> None:
        """Add a request that passed at these places, or everywhere."""
        self._uses.append((time, cost, places))
        self.offered += cost
        if places is None:
            self.everywhere += cost
        else:
            for place in places:
                self.elsewhere[place] += cost


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
        """The first and the last refusal by the first limit, as `refused` counts them."""
        self.refused_by = 0
        """The limits that have refused this client, as bits."""
        self.last = time
        self.units = 0
        self.visit: list[Row] = []
        self.pasts: list[tuple[Ask, Past]] | None = None

    def refuse(self, places: int, time: int) -> int:
        """Count a refusal by these limits, as bits; return those that refuse this client for the first time."""
        if places & 1:
            if not self.refused:
                self.first = time
            self.refused += 1
            self.refused_last = time
        new = places & ~self.refused_by
        self.refused_by |= new
        return new

    def result(self) -> RefusedClient:
        """Return the counts as plain data."""
        return RefusedClient(self.key, self.requests, self.refused, self.first, self.refused_last, self.errors)


Ask = Callable[[Past, Client, int, int, Bins], None]
"""A question about a request of this client, with its time and its cost."""
