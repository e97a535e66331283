"""The contract of estimators: how many requests may be in flight, worked out from those that were.

An estimator has no clock, no lock and no queue. The shedder tells it of every request, with the time, under its own
lock; the estimator keeps `limit` up to date. So a table of samples tests it, and a simulation runs it in virtual time.
"""

from __future__ import annotations

from typing import Protocol

from headgate.permit import Outcome


class Estimator(Protocol):
    """The methods that a shedder calls of an estimator."""

    limit: int
    """Requests that may be in flight now; at least 1."""

    undipped: int
    """The same for critical requests. It differs from `limit` only while an estimator lowers the limit to measure."""

    base: float
    """Microseconds that a request takes when none waits; 0 while that is unknown."""

    dips: bool
    """Whether the estimator may lower the limit to measure; set to False while the limit is not enforced."""

    idle_until: int
    """Requests that begin before this instant need not be told: so few are in flight that they say nothing new."""

    def begin(self, now: int, in_flight: int) -> int:
        """Note that a request begins at `now`, microseconds; `in_flight` counts it too. Return its mark for `end`."""
        ...

    def end(self, now: int, mark: int, latency: int, outcome: Outcome) -> None:
        """Note the end of the request with this mark, `latency` microseconds after it began."""
        ...

    def refuse(self, now: int) -> None:
        """Note that a request was refused because `limit` requests were in flight."""
        ...
