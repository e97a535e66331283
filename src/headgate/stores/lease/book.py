"""The books of leases: how many permits to ask for, which may be spent, and which are to be given back.

No I/O, no clock but the one it is given, no lock over anything slow: a gate, a test or a simulation carries the
questions. The safety is in three lines: a permit is charged at the server before it can be spent; it is spent only
within `validity` of the local instant at which it was asked for, and within its window; and what is left over is given
back at most once, counted from the server's instant of the grant. Everything else here is about how many to ask for.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from headgate.engine import Decision
from headgate.engine.purse import Lease, Purses
from headgate.limit import Limit
from headgate.stores.lease.terms import Lease as Terms

HOT: Final = 3
"""Requests for one key within a validity, from which on its permits are bought in advance."""
AHEAD: Final = 4
"""A lease of which only one part in so many is left is low: the next one is bought."""
GROWTH: Final = 4
"""A lease is at most so many times as large as the one before it."""
LASTS: Final = 0.5
"""The part of its validity that a lease is meant to last."""
MOST: Final = 10_000
"""Keys that are looked after. One that is forgotten is asked about at the server."""


class Grant(NamedTuple):
    """Permits as the server charged them."""

    key: str
    units: int
    marks: tuple[tuple[int, int], ...]
    """Where the charge landed under each limit, counted from the time of the grant."""
    sent_us: int
    until_us: int
    left: tuple[int, ...]
    """What the server had left beside them, under each limit; and when its states are as new."""
    resets: tuple[int, ...]


class Unused(NamedTuple):
    """What is to be given back."""

    key: str
    units: int
    marks: tuple[tuple[int, int], ...]


class _Held:
    """One key."""

    __slots__ = ("asked", "asking", "current", "following", "lease", "left", "rate", "seen_us", "size")

    def __init__(self, lease: Lease, now: int) -> None:
        self.lease = lease
        self.current: Grant | None = None
        self.following: Grant | None = None
        """Bought ahead; its turn comes when the current one is spent or void."""
        self.asking = False
        """Permits are on their way."""
        self.size = 1
        """Of the last grant."""
        self.rate = 0.0
        """Units a microsecond that were spent here lately."""
        self.left: int | None = None
        """What the server had left when it was last asked."""
        self.asked = 0
        self.seen_us = now
        """Of a key that has no lease: units asked for, and since when."""


class LeaseBook:
    """The leases of a limiter in one process."""

    def __init__(self, limits: tuple[Limit, ...], terms: Terms, purses: Purses, now_us: Callable[[], int]) -> None:
        self.terms = terms
        self._limits = limits
        self._windows = tuple(at for at, limit in enumerate(limits) if not limit.step.LENDS)
        self._purses = purses
        self._now_us = now_us
        self._held: dict[str, _Held] = {}
        self._ending: deque[tuple[int, str, int]] = deque()
        """Grants by when they are void: instant, key, serial."""
        self._unused: list[Unused] = []
        self._serial = 0
        self._lock = threading.Lock()

    def spend(self, key: str, units: int) -> Decision | None:
        """From the current lease or from the one bought ahead; None where neither is enough."""
        decision = self._purses.spend(key, units)
        if decision is None and self._turn_over(key):
            decision = self._purses.spend(key, units)
        return decision

    def wanted(self, key: str, units: int, waiting: int = 0) -> int:
        """How many permits to ask the server for; `units` itself where it is to be asked for just these.

        `waiting`: units that others in this process wait for.
        """
        now = self._now_us()
        with self._lock:
            held = self._held.get(key) or self._open(key, now)
            if held.asking:
                return units
            self._note(held, units + waiting, now)
            if held.left is None or held.asked < HOT:
                return units
            lasting = held.rate * self.terms.validity_us * LASTS
            most = min(held.size * GROWTH, int(held.left * self.terms.share))
            extra = min(int(lasting), most)
            return units if extra < self.terms.floor else max(units, waiting) + extra

    def low(self, key: str) -> int:
        """How many to buy ahead, where it is time for that; else 0."""
        now = self._now_us()
        with self._lock:
            held = self._held.get(key)
            if held is None or held.asking or held.following or held.current is None:
                return 0
            lease, current = held.lease, held.current
            if lease.permits > lease.low or now >= current.until_us:
                return 0
            held.rate = (current.units - lease.permits) / max(1, now - current.sent_us)
            lease.low = 0  # this lease is looked after: nobody else need stop here
            most = min(held.size * GROWTH, int((held.left or 0) * self.terms.share))
            extra = min(int(held.rate * self.terms.validity_us * LASTS), most)
            return 0 if extra < self.terms.floor else extra

    def asking(self, key: str) -> int | None:
        """Begin to buy: the instant, for `granted`; None if somebody does so already."""
        now = self._now_us()
        with self._lock:
            held = self._held.get(key) or self._open(key, now)
            if held.asking:
                return None
            held.asking = True
            return now

    def granted(self, key: str, sent_us: int, granted_us: int, decision: Decision) -> None:
        """What the server answered: permits, or none."""
        now = self._now_us()
        with self._lock:
            held = self._held.get(key) or self._open(key, now)
            held.asking = False
            held.left = decision.remaining
            if not decision.allowed:
                held.size = 1
                return
            verdicts = decision.verdicts
            until = sent_us + self.terms.validity_us
            for at in self._windows:  # permits die with their window; it ends so long after the grant, or later
                until = min(until, sent_us + verdicts[at].reset_us)
            marks = tuple(
                limit.step.at_grant(verdict.mark, granted_us)
                for limit, verdict in zip(self._limits, verdicts, strict=True)
            )
            left = tuple(verdict.remaining for verdict in verdicts)
            resets = tuple(sent_us + verdict.reset_us for verdict in verdicts)
            grant = Grant(key, decision.granted, marks, sent_us, until, left, resets)
            held.size = grant.units
            if now >= until:
                self._give_back(grant, grant.units, now)
            elif held.current is not None and held.lease.permits and now < held.current.until_us:
                held.following = grant
            else:
                self._retire(held, now)
                self._begin(held, grant)

    def failed(self, key: str) -> None:
        """No answer. What was charged, if anything was, is lost; the key starts again from single permits."""
        with self._lock:
            held = self._held.get(key)
            if held is not None:
                held.asking = False
                held.left, held.size, held.asked = None, 1, 0

    def saw(self, key: str, decision: Decision) -> None:
        """The server was asked for just these."""
        with self._lock:
            held = self._held.get(key)
            if held is not None:
                held.left = decision.remaining

    def refund(self, key: str, units: int, serial: int) -> None:
        """Units paid from a lease are in it again, if it is still the one."""
        with self._lock:
            held = self._held.get(key)
            if held is not None and held.current is not None and held.lease.serial == serial:
                self._purses.fill(held.lease, units, held.current.units)

    def forget(self, key: str | None = None) -> None:
        """Without giving anything back: the server's state is as new, or this process is another's child."""
        with self._lock:
            for each in list(self._held) if key is None else [key]:
                self._purses.leases.pop(each, None)
                self._held.pop(each, None)
            if key is None:
                self._unused.clear()
                self._ending.clear()

    def unused(self, most: int | None = None) -> list[Unused]:
        """What is to be given back now, so many at most; everything for -1, when the process is about to end."""
        now = self._now_us()
        everything = most == -1
        with self._lock:
            while self._ending and (everything or self._ending[0][0] <= now):
                _, key, serial = self._ending.popleft()
                held = self._held.get(key)
                if held is not None and held.lease.serial == serial:
                    self._retire(held, now)
                    if everything and held.following is not None:
                        self._give_back(held.following, held.following.units, now)
                        held.following = None
            count = len(self._unused) if most is None or everything else most
            given, self._unused = self._unused[:count], self._unused[count:]
            return given

    @property
    def leases(self) -> bool:
        """Whether there is anything to look after."""
        return bool(self._ending or self._unused)

    def _turn_over(self, key: str) -> bool:
        """Let the lease that was bought ahead follow one that is spent or void."""
        now = self._now_us()
        with self._lock:
            held = self._held.get(key)
            if held is None or held.following is None:
                return False
            self._retire(held, now)
            self._begin(held, held.following)
            return True

    def _open(self, key: str, now: int) -> _Held:
        if len(self._held) >= MOST:
            for oldest in list(self._held)[: MOST // 4]:
                held = self._held[oldest]
                if not held.asking:
                    self._retire(held, now)
                    if held.following is not None:
                        self._give_back(held.following, held.following.units, now)
                    self._purses.leases.pop(oldest, None)
                    del self._held[oldest]
        held = self._held[key] = _Held(self._purses.open(key), now)
        return held

    def _note(self, held: _Held, units: int, now: int) -> None:
        """How often a key without a lease is asked for."""
        if held.current is not None:
            return
        if now - held.seen_us > self.terms.validity_us:
            held.asked, held.seen_us = 0, now
        held.asked += units
        held.rate = held.asked / max(1000, now - held.seen_us)

    def _begin(self, held: _Held, grant: Grant) -> None:
        self._serial += 1
        held.current, held.following = grant, None
        lease = held.lease
        lease.until_us, lease.low = grant.until_us, grant.units // AHEAD
        lease.left, lease.resets, lease.serial = grant.left, grant.resets, self._serial
        self._purses.fill(lease, grant.units, grant.units)
        self._ending.append((grant.until_us, grant.key, self._serial))

    def _retire(self, held: _Held, now: int) -> None:
        """The current lease has ended: what was spent of it says how large the next one should be."""
        grant = held.current
        if grant is None:
            return
        left = self._purses.drain(held.lease)
        held.current = None
        held.rate = (grant.units - left) / max(1, min(now, grant.until_us) - grant.sent_us)
        held.asked, held.seen_us = max(HOT, grant.units - left) if left < grant.units else 0, now
        if left:
            self._give_back(grant, left, now)

    def _give_back(self, grant: Grant, units: int, now: int) -> None:
        """Unless so much time has passed that there is nothing to give: a bucket has filled up by itself."""
        elapsed = now - grant.sent_us
        if self._windows or any(units * limit.period_us > elapsed * limit.amount for limit in self._limits):
            self._unused.append(Unused(grant.key, units, grant.marks))
