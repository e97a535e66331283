"""The burst that each client of a log would have needed never to be refused: exact, in one pass.

A token bucket refuses no request of a client if its burst is at least the highest level of a leaky bucket without a
bound, into which every request pours its cost and which drains at the rate. The level is kept in units that make it
whole: at a rate of a/p units of cost per microsecond, one unit of cost is p and a microsecond drains a.

Requests are gathered by client and poured in batches: a client is looked up once for each request, its levels only once
for each batch and rate.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

from headgate.algorithms import bucket
from headgate.lab.logs import Row
from headgate.lab.text import ERRORS
from headgate.limit import Limit

Batch: TypeAlias = list[tuple[int, int]]
"""Times and costs of some requests of one client."""
BATCH: Final = 32


class Client(NamedTuple):
    """One client of a log."""

    key: str
    requests: int
    errors: int
    """Requests whose answer was an error."""
    most: int
    """The most requests in any window of the length that was asked for."""
    bursts: tuple[int, ...]
    """For each rate, the smallest burst that refuses none of the requests."""


def measure(requests: Iterable[Row], limits: Sequence[Limit], window_us: int) -> list[Client]:
    """Return the clients of a log, which is in the order of time, and the bursts they need at these rates."""
    rates = [bucket.Params(*limit.params) for limit in limits]
    waiting: dict[str, Batch] = {}
    tallies: dict[str, _Tally] = {}
    errors: defaultdict[str, int] = defaultdict(int)
    for time, key, cost, _, _, status in requests:
        batch = waiting.get(key)
        if batch is None:
            batch = waiting[key] = []
        batch.append((time, cost))
        if len(batch) == BATCH:
            if key not in tallies:
                tallies[key] = _Tally(rates, window_us)
            tallies[key].add(batch)
            batch.clear()
        if status >= ERRORS:
            errors[key] += 1
    return [
        (tallies.pop(key, None) or _Tally(rates, window_us)).client(key, batch, errors.get(key, 0))
        for key, batch in waiting.items()
    ]


class _Tally:
    """The facts of a client so far."""

    __slots__ = ("_last", "_levels", "_most", "_peaks", "_rates", "_recent", "_requests", "_window_us")

    def __init__(self, rates: Sequence[bucket.Params], window_us: int) -> None:
        self._rates, self._window_us = rates, window_us
        self._levels, self._peaks = [0] * len(rates), [0] * len(rates)
        self._requests = self._most = self._last = 0
        self._recent: list[int] = []
        """The last requests, as many as the most in a window."""

    def client(self, key: str, rest: Batch, errors: int) -> Client:
        """Add the last requests, and return what is known then."""
        if rest:
            self.add(rest)
        bursts = tuple(-(-peak // rate.p) for peak, rate in zip(self._peaks, self._rates, strict=True))
        return Client(key, self._requests, errors, self._most, bursts)

    def add(self, batch: Batch) -> None:
        """Add the next requests of the client."""
        times, costs = zip(*batch, strict=True)
        self._count(times)
        gaps = [time - before for before, time in zip((self._last, *times), times, strict=False)]
        self._last = times[-1]
        pour = _pour_ones if set(costs) == {1} else _pour
        levels, peaks = self._levels, self._peaks
        for at, rate in enumerate(self._rates):
            levels[at], peaks[at] = pour(levels[at], peaks[at], gaps, costs, rate)

    def _count(self, times: Sequence[int]) -> None:
        """Find the most requests in a window: one more, where as many as were found so far precede one within it."""
        most, window_us = self._most, self._window_us
        stamps = [*self._recent, *times]
        for at in range(most, len(stamps)):
            if stamps[at] - stamps[at - most] < window_us:
                most += 1
        self._most, self._recent = most, stamps[-most:]
        self._requests += len(times)


def _pour(level: int, peak: int, gaps: Sequence[int], costs: Sequence[int], rate: bucket.Params) -> tuple[int, int]:
    """Pour each cost after its gap; return the level, and the highest level so far."""
    a, p = rate.a, rate.p
    for gap, cost in zip(gaps, costs, strict=True):
        level = max(0, level - gap * a) + cost * p
        peak = max(peak, level)
    return level, peak


def _pour_ones(
    level: int, peak: int, gaps: Sequence[int], costs: Sequence[int], rate: bucket.Params
) -> tuple[int, int]:
    """Do the same where every cost is 1, which is three times as fast."""
    a, p = rate.a, rate.p
    for gap in gaps:
        level -= gap * a
        if level > 0:
            level += p
            if level > peak:
                peak = level
        else:
            level = p
    return level, max(peak, p)
