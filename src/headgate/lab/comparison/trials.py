"""One limit under test: the real engine on a clock set by hand, and the counts of its answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import islice
from time import perf_counter_ns
from typing import Final

from headgate.algorithms import EXACT
from headgate.clock import MILLISECOND, SECOND, Clock
from headgate.engine import words_for
from headgate.lab.comparison.limits import Candidate
from headgate.lab.comparison.results import Measured, Waits, Wrong
from headgate.lab.comparison.trailing import Trailing
from headgate.layout import WORD
from headgate.limit import Limit
from headgate.limiter import Limiter
from headgate.shaper import Shaper
from headgate.stores import MemoryStore

MOST_BYTES: Final = 2**30
"""For the states of one limit. Only clients that come near a limit have one."""
TIMED: Final = 2_000
"""Decisions in one round of the measurement of their time."""
ROUNDS: Final = 5


class LimitTrial:
    """One limit, and what it did to the requests."""

    def __init__(self, limit: Limit, clock: Clock) -> None:
        self.limit = limit
        self._store = MemoryStore(max_bytes=MOST_BYTES, clock=clock)
        self.hit = Limiter(limit, store=self._store).hit
        self.refused = self.refused_before = self.clients = self.most = 0
        """`refused_before` are the refusals that the bins have already."""
        self.same_passed = self.same_refused = self.own_passed = self.own_refused = 0
        self.offered = Estimate(limit, clock) if limit.step.KIND == "window" else None

    def measured(self, keys: Iterable[str]) -> Measured:
        """Return the results; the time of a decision is measured with these keys."""
        return Measured(
            limit=self.limit,
            refused=self.refused,
            clients=self.clients,
            most=self.most,
            same_past=Wrong(self.same_passed, self.same_refused),
            own_past=Wrong(self.own_passed, self.own_refused),
            offered=self.offered.wrong() if self.offered else None,
            bytes=bytes_of(self.limit),
            nanoseconds=time_of(Limiter(self.limit).hit, keys),
            forgotten=self._store.evictions(),
        )


class Estimate:
    """The count of a window over all requests of a client, also those that the limit refuses.

    It is the same window with the largest amount that it can count to, so that nothing is refused.
    """

    def __init__(self, limit: Limit, clock: Clock) -> None:
        self.passed = self.refused = 0
        self._full = False
        most = (EXACT - 1) // (limit.period_us // limit.params[3])
        self.least = most - limit.amount
        """What remains at least, if the estimate is within the amount."""
        self.hit = Limiter(limit.replace(amount=most, block=0), store=MemoryStore(clock=clock)).hit

    def miss(self, counted: bool, fits: bool) -> None:
        """Note a request that was not counted, or whose estimate differs from the truth: whether it fits."""
        if not counted:
            self._full = True
        elif fits:
            self.refused += 1
        else:
            self.passed += 1

    def wrong(self) -> Wrong | None:
        """Return the wrong answers; None if a client has sent more than can be counted."""
        return None if self._full else Wrong(self.passed, self.refused)


class QueueTrial:
    """A limit that makes requests wait: dropped requests, and how long the others waited."""

    def __init__(self, limit: Limit, clock: Clock) -> None:
        self.limit = limit
        self._store = MemoryStore(max_bytes=MOST_BYTES, clock=clock)
        self._enter = Shaper(limit, store=self._store).enter
        self._departures: dict[str, Trailing] = {}
        self._waits: Counter[int] = Counter()
        self.refused = self.refused_before = self.clients = self.most = 0

    def admits(self, time: int, key: str, cost: int) -> bool:
        """Take a place in the queue of this client; False if it is full."""
        departure = self._enter(key, cost)
        if not departure:
            return False
        self._waits[-(-departure.delay_us // MILLISECOND)] += 1
        departures = self._departures.get(key)
        if departures is None:
            departures = self._departures[key] = Trailing(self.limit.period_us)
        leaves = time + departure.delay_us
        departures.at(leaves)
        self.most = max(self.most, departures.add(leaves, cost))
        return True

    def measured(self, keys: Iterable[str]) -> Measured:
        """Return the results; the time of a decision is measured with these keys."""
        return Measured(
            limit=self.limit,
            refused=self.refused,
            clients=self.clients,
            most=self.most,
            same_past=None,
            own_past=None,
            offered=None,
            bytes=bytes_of(self.limit),
            nanoseconds=time_of(Shaper(self.limit).enter, keys),
            waits=Waits(self._quantile(1, 2), self._quantile(99, 100), self._quantile(1, 1)),
            forgotten=self._store.evictions(),
        )

    def _quantile(self, part: int, whole: int) -> float:
        """Return the shortest wait, in seconds, that this part of the admitted requests did not exceed."""
        rank, seen = -(-sum(self._waits.values()) * part // whole), 0
        for wait in sorted(self._waits):
            seen += self._waits[wait]
            if seen >= rank:
                return wait * MILLISECOND / SECOND
        return 0.0


def trial_of(candidate: Candidate, clock: Clock) -> LimitTrial | QueueTrial:
    """Return the trial of a limit."""
    return QueueTrial(candidate.limit, clock) if candidate.queue else LimitTrial(candidate.limit, clock)


def bytes_of(limit: Limit) -> int:
    """Return the bytes of one key in memory: its fingerprint and its state."""
    return WORD * (1 + words_for(limit) + (limit.block_us > 0))


def time_of(decide: object, keys: Iterable[str]) -> int:
    """Return the nanoseconds of one decision: the quickest of several rounds over keys of the log."""
    assert callable(decide)  # noqa: S101 - a bound method of the native engine has no type that says so
    some = list(islice(keys, TIMED))
    if not some:
        return 0
    rounds = []
    for _ in range(ROUNDS):
        begin = perf_counter_ns()
        for key in some:
            decide(key)
        rounds.append(perf_counter_ns() - begin)
    return min(rounds) // len(some)
