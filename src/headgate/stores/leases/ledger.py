"""The ledgers of leases: how many tokens to ask for, which may be spent, and which are to be given back.

No I/O, no clock but the one it is given, no lock over anything slow: a gate, a test or a simulation carries the
questions. The safety is in three lines: a token is charged at the server before it can be spent; it is spent only
within `validity` of the local instant at which it was asked for, and within its window; and what is left over is given
back at most once, counted from the server's instant of the grant. Everything else here is about how many to ask for.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from headgate.algorithms.contract import Verdict
from headgate.engine import Decision
from headgate.engine.lease_cache import LeasedTokens
from headgate.limit import Limit
from headgate.stores.leases.grants import Grant, Held, Unused
from headgate.stores.leases.terms import Lease as Terms

HOT: Final = 3
"""Units asked for, lately, from which on tokens of a key are bought in advance."""
COUNTED: Final = 2
"""Validities for which what was asked for is counted: a lease that has just run out says how large the next one is."""
AHEAD: Final = 4
"""A lease of which only one part in so many is left is low: the next one is bought."""
GROWTH: Final = 4
"""A lease is at most so many times as large as the one before it."""
LASTS: Final = 0.5
"""The part of its validity that a lease is meant to last."""
OF_A_WINDOW: Final = 1 / 3
"""The part of what is left of a window that a lease is meant to last: its tokens die with the window."""
MOST: Final = 10_000
"""Keys that are looked after. One that is forgotten is asked about at the server."""


class LeaseLedger:
    """The leases of a limiter in one process."""

    def __init__(
        self, limits: tuple[Limit, ...], terms: Terms, tokens: LeasedTokens, now_us: Callable[[], int]
    ) -> None:
        self.terms = terms
        self._limits = limits
        self._windows = tuple(at for at, limit in enumerate(limits) if not limit.step.LENDS)
        self._tokens = tokens
        self._now_us = now_us
        self._held: dict[str, Held] = {}
        self._ending: deque[Grant] = deque()
        """By when they are void, or nearly so."""
        self._unused: list[Unused] = []
        self._unused_us = 0
        """Since when there is something in it, or since when it could not be sent."""
        self._ended: dict[int, Grant] = {}
        """By serial, for refunds that come late; as many as there may be keys."""
        self._serial = 0
        self._lock = threading.Lock()

    def spend(self, key: str, units: int) -> Decision | None:
        """From the current lease, or from what is left of it and the one bought ahead; None if that is not enough."""
        decision = self._tokens.spend(key, units)
        return self._turn_over(key, units) if decision is None else decision

    def wanted(self, key: str, units: int) -> int:
        """How many tokens to ask the server for; `units` itself where it is to be asked for just these."""
        now = self._now_us()
        with self._lock:
            held = self._held.get(key) or self._open(key, now)
            if held.asking is not None:
                return units
            if held.current is not None and (now >= held.current.until_us or not held.lease.tokens):
                self._retire(held, now)
            self._note(held, units, now)
            extra = self._extra(held, now) if held.asked >= HOT else 0
            wanted = units + extra
            # What does not fit is not to take what is left from those whom it would serve.
            return wanted if extra and wanted <= (held.left or 0) else units

    def low(self, key: str) -> int:
        """How many to buy ahead, where it is time for that; else 0."""
        now = self._now_us()
        with self._lock:
            held = self._held.get(key)
            if held is None or held.asking is not None or held.following or held.current is None:
                return 0
            lease, current = held.lease, held.current
            if lease.tokens > lease.low or now >= current.until_us:
                return 0
            held.rate = (current.units - lease.tokens) / max(1, now - current.sent_us)
            lease.low = 0  # this lease is looked after: nobody else need stop here
            return self._extra(held, now)

    def asking(self, key: str) -> int | None:
        """Begin to buy: the instant, for `granted`; None if somebody does so already, or has just done it."""
        now = self._now_us()
        with self._lock:
            held = self._held.get(key) or self._open(key, now)
            if held.asking is not None or held.following is not None:
                return None
            held.asking = now
            return now

    def granted(self, key: str, sent_us: int, granted_us: int, decision: Decision) -> None:
        """What the server answered: tokens, or none."""
        now = self._now_us()
        with self._lock:
            held = self._held.pop(key, None)
            if held is None:  # forgotten meanwhile: the server may know nothing of these any more
                return
            self._held[key] = held  # as the last of those to be given up
            if held.asking != sent_us:
                return
            held.asking = None
            verdicts = decision.verdicts
            self._see(held, verdicts, now)
            if not decision.allowed:
                held.size = 1
                return
            until = sent_us + self.terms.validity_us
            for at in self._windows:  # tokens die with their window; it ends so long after the grant, or later
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
                return
            self._ending.append(grant)
            if held.current is not None and held.lease.tokens and now < held.current.until_us:
                held.following = grant
            else:
                self._retire(held, now)
                self._begin(held, grant)

    def failed(self, key: str) -> None:
        """No answer. What was charged, if anything was, is lost; the key starts again from single tokens."""
        with self._lock:
            held = self._held.get(key)
            if held is not None:
                held.asking = None
                held.left, held.size, held.asked = None, 1, 0

    def saw(self, key: str, decision: Decision) -> None:
        """The server was asked for just these."""
        with self._lock:
            held = self._held.get(key)
            if held is not None:
                self._see(held, decision.verdicts, self._now_us())

    def refund(self, key: str, units: int, serial: int) -> None:
        """Units paid from a lease are in it again; if it has ended, they are to be given back as the rest of it was."""
        now = self._now_us()
        with self._lock:
            held = self._held.get(key)
            if held is not None and held.current is not None and held.lease.serial == serial:
                self._tokens.fill(held.lease, units, held.current.units)
            elif (ended := self._ended.get(serial)) is not None and ended.key == key:
                self._give_back(ended, units, now)

    def grants(self, key: str) -> tuple[Grant, ...]:
        """The leases of a key, in the order in which they will be spent."""
        with self._lock:
            held = self._held.get(key)
            return () if held is None else tuple(grant for grant in (held.current, held.following) if grant is not None)

    def tokens(self, grants: tuple[Grant, ...]) -> list[int]:
        """How many tokens of each of these leases may still be spent."""
        now = self._now_us()
        with self._lock:
            return [self._tokens_of(grant) if now < grant.until_us else 0 for grant in grants]

    def _tokens_of(self, grant: Grant) -> int:
        held = self._held.get(grant.key)
        if held is None or grant is held.current:
            return 0 if held is None else held.lease.tokens
        return grant.units if grant is held.following else 0

    def forget(self, key: str | None = None) -> None:
        """Without giving anything back: the server's state is as new."""
        with self._lock:
            for each in list(self._held) if key is None else [key]:
                self._tokens.leases.pop(each, None)
                self._held.pop(each, None)
            if key is None:
                self._unused.clear()
                self._ending.clear()
                self._ended.clear()

    def disown(self) -> None:
        """In a process that was forked: what is held is the parent's, and so may the lock be."""
        self._lock = threading.Lock()
        self.forget()

    def unused(self, most: int | None = None) -> list[Unused]:
        """What is to be given back now, so many at most; everything for -1, when the process is about to end."""
        now = self._now_us()
        everything = most == -1
        with self._lock:
            while self._ending and (everything or self._ending[0].until_us <= now):
                grant = self._ending.popleft()
                held = self._held.get(grant.key)
                if held is not None and held.current is grant:
                    self._retire(held, now)
                elif held is not None and held.following is grant:
                    held.following = None
                    self._give_back(grant, grant.units, now)
            count = len(self._unused) if most is None or everything else most
            given, self._unused[:count] = self._unused[:count], []
            return given

    def keep(self, unused: list[Unused]) -> None:
        """These could not be sent yet."""
        with self._lock:
            self._unused = unused + self._unused
            self._unused_us = self._now_us()

    def next_return(self) -> int | None:
        """Microseconds until something is to be given back; None if nothing is held.

        What comes up before a lease ends (a refund, what is left where the next lease begins) goes with it, or waits
        for a validity.
        """
        now = self._now_us()
        with self._lock:
            ends = [self._ending[0].until_us] if self._ending else []
            if self._unused:
                ends.append(self._unused_us + self.terms.validity_us)
            return max(0, min(ends) - now) if ends else None

    def _turn_over(self, key: str, units: int) -> Decision | None:
        """Let the lease that was bought ahead follow one that is void, or not enough, and pay from both."""
        now = self._now_us()
        with self._lock:
            held = self._held.get(key)
            if held is None or held.following is None:
                return self._tokens.spend(key, units)  # somebody else may have turned over
            ended, grant = held.current, held.following
            left = self._close(held, now)
            self._begin(held, grant)
            decision = self._tokens.spend(key, units)
            if ended is not None and left:
                old = min(left, units) if decision is not None and now < ended.until_us else 0
                self._tokens.fill(held.lease, old, grant.units)
                if left > old:
                    self._give_back(ended, left - old, now)
            return decision

    def _open(self, key: str, now: int) -> Held:
        if len(self._held) >= MOST:
            self._make_room(now)
        held = self._held[key] = Held(self._tokens.open(key), now)
        return held

    def _make_room(self, now: int) -> None:
        """Give up the quarter that has bought nothing for the longest time."""
        for oldest in list(self._held)[: MOST // 4]:
            held = self._held[oldest]
            if held.asking is None:
                self._retire(held, now)
                if held.following is not None:
                    self._give_back(held.following, held.following.units, now)
                self._tokens.leases.pop(oldest, None)
                del self._held[oldest]
        self._ending = deque(grant for grant in self._ending if grant.key in self._held)

    def _note(self, held: Held, units: int, now: int) -> None:
        """How often a key without a lease is asked for."""
        if held.current is not None:
            return
        if now - held.seen_us > COUNTED * self.terms.validity_us:
            held.asked, held.seen_us = 0, now
        held.asked += units
        held.rate = held.asked / max(1000, now - held.seen_us)

    def _see(self, held: Held, verdicts: tuple[Verdict, ...], now: int) -> None:
        """How the server's state is."""
        held.left = min(verdict.remaining for verdict in verdicts)
        held.ends_us = min((now + verdicts[at].reset_us for at in self._windows), default=0)

    def _extra(self, held: Held, now: int) -> int:
        """How many to buy in advance; 0 where that would be too few."""
        floor, lasts = self.terms.floor, self.terms.validity_us * LASTS
        if self._windows:
            period = min(self._limits[at].period_us for at in self._windows)
            lasts = min(lasts, ((held.ends_us - now - 1) % period + 1) * OF_A_WINDOW)
        most = min(max(held.size * GROWTH, floor), int((held.left or 0) * self.terms.share))
        extra = min(int(held.rate * lasts), most)
        return 0 if extra < floor else extra

    def _begin(self, held: Held, grant: Grant) -> None:
        self._serial += 1
        held.current, held.following = grant, None
        lease = held.lease
        lease.until_us, lease.low = grant.until_us, grant.units // AHEAD
        lease.left, lease.resets, lease.serial = grant.left, grant.resets, self._serial
        self._tokens.fill(lease, grant.units, grant.units)

    def _close(self, held: Held, now: int) -> int:
        """The current lease ends with so much left: what was spent of it says how large the next one should be."""
        grant = held.current
        if grant is None:
            return 0
        left = self._tokens.drain(held.lease)
        held.current = None
        self._ended[held.lease.serial] = grant
        if len(self._ended) > MOST:
            del self._ended[next(iter(self._ended))]
        held.rate = (grant.units - left) / max(1, min(now, grant.until_us) - grant.sent_us)
        held.asked, held.seen_us = grant.units - left, grant.sent_us
        return left

    def _retire(self, held: Held, now: int) -> None:
        """End the current lease, and give back what is left."""
        grant = held.current
        left = self._close(held, now)
        if grant is not None and left:
            self._give_back(grant, left, now)

    def _give_back(self, grant: Grant, units: int, now: int) -> None:
        """Unless nothing would come of it: a bucket has filled up by itself, a window has ended."""
        elapsed = now - grant.sent_us
        for limit, resets_us in zip(self._limits, grant.resets, strict=True):
            if units * limit.period_us > elapsed * limit.amount if limit.step.LENDS else now < resets_us:
                if not self._unused:
                    self._unused_us = now
                self._unused.append(Unused(grant.key, units, grant.marks))
                return
