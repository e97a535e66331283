"""The ledger of leases: how many tokens to ask for, which may be spent, and which to give back.

It does no I/O, reads only the given clock and holds no lock during slow work: a gate, a test or a simulation sends the
commands. Three rules make it safe: a token is charged at the server before it can be spent; it is spent only within
`validity` of the local instant at which it was asked for, and in its fixed window; and unused tokens are given back at
most once, as of the server's instant of the grant. All other code here chooses how many tokens to ask for.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from headgate.engine import Decision
from headgate.engine.lease_cache import LeasedTokens
from headgate.limit import Limit
from headgate.stores.leases.demand import HOT, Demand
from headgate.stores.leases.grants import Grant, Held, Reply, Unspent, Unused, counts_still, granted_tokens, tokens_of
from headgate.stores.leases.pace import Pace
from headgate.stores.leases.terms import Lease as Terms
from headgate.stores.leases.turns import Turns

MOST: Final = 10_000
"""The most keys in the ledger. A decision about a key that was dropped goes to the server."""


class LeaseLedger:
    """The leases of a limiter in one process."""

    def __init__(
        self, limits: tuple[Limit, ...], terms: Terms, tokens: LeasedTokens, now_us: Callable[[], int]
    ) -> None:
        self.terms = terms
        self._limits = limits
        self._demand = Demand(limits, terms)
        self.turns = Turns(limits)
        self.pace = Pace(limits)
        self._tokens = tokens
        self._now_us = now_us
        self._held: dict[str, Held] = {}
        self._ending: deque[Grant] = deque()
        """The grants, roughly in the order in which they expire."""
        self._unused = Unspent()
        self._ended: dict[int, Grant] = {}
        """Grants that have ended, by serial, for late refunds; at most as many as keys."""
        self._serial = 0
        self._lock = threading.Lock()

    def spend(self, key: str, units: int) -> Decision | None:
        """Spend from the current lease, or from it and the one charged ahead; None if both have too few tokens."""
        decision = self._tokens.spend(key, units)
        return self._turn_over(key, units) if decision is None else decision

    def refused(self, key: str, units: int, missed: int = 0) -> Decision | None:
        """Return a refusal if the key is short and it is not time yet for the next question; count what it misses."""
        held, now = self._held.get(key), self._now_us()
        return None if held is None else self.pace.refused(held, key, units, missed, now)

    def resume(self, key: str) -> None:
        """Ask at the next call: units of the key were given back."""
        if (held := self._held.get(key)) is not None:
            held.pause = None

    def wanted(self, key: str, units: int) -> int:
        """Return the number of tokens to ask the server for; `units` itself if it should be asked for no more."""
        now = self._now_us()
        with self._lock:
            held = self._held.get(key) or self._open(key, now)
            if held.asking is not None:
                return units
            if held.current is not None and (now >= held.current.until_us or not held.lease.tokens):
                self._retire(held, now)
            self._demand.note(held, units, now)
            ahead = self._demand.ahead(held, now, self.turns.parts(held), self.turns.nodes) if held.asked >= HOT else 0
            return max(units + ahead * (ahead >= units), held.waiting)  # tokens for less than such a call are no use

    def answer(self, key: str, units: int) -> Reply | None:
        """Return the answer to the question under way about a key, for a caller that waits; None if there is none."""
        with self._lock:
            return None if (held := self._held.get(key)) is None else held.wait_for(units)

    def low(self, key: str) -> int:
        """Return the number of tokens to ask for ahead of need; 0 if it is not time yet."""
        now = self._now_us()
        with self._lock:
            held = self._held.get(key)
            if held is None or held.asking is not None or held.following or held.current is None or held.short:
                return 0
            lease, current = held.lease, held.current
            if lease.tokens > lease.low or now >= current.until_us or (held.pause and now < held.pause.until_us):
                return 0
            self._demand.spent(held, current, lease.tokens, now)
            lease.low = 0  # this caller refills the lease: others need not stop here
            return self._demand.ahead(held, now, self.turns.parts(held), self.turns.nodes)

    def asking(self, key: str, units: int, wanted: int) -> tuple[int, tuple[int, ...]] | None:
        """Start to ask for units and tokens, `wanted` in all; None if another caller asks, or just has.

        Return the instant, for `granted`, and the numbers of the turn that go with the question.
        """
        now = self._now_us()
        with self._lock:
            held = self._held.get(key) or self._open(key, now)
            if held.asking is not None or held.following is not None:
                return None
            held.asking, held.wanted, held.own, held.waiting = now, wanted, units if wanted == units else 0, 0
            self.pace.renew(held, now)
            return now, self.turns.numbers(held, held.asked >= HOT, now)

    def granted(self, key: str, sent_us: int, granted_us: int, decision: Decision, turn: tuple[int, bool]) -> bool:
        """Take the server's answer: tokens or none, and a turn; return whether the key is asked for often."""
        now = self._now_us()
        with self._lock:
            held = self._held.get(key)
            if held is None or held.asking != sent_us:  # dropped meanwhile: the server's state may be gone too
                return False
            self._held[key] = self._held.pop(key)  # moved to the end: the last to be dropped
            self._demand.see(held, decision.verdicts, now)
            (held.wait, held.crowded), held.turn_us = turn, now + turn[0]
            self.pace.see(held, decision, self.turns.parts(held), now)
            if not decision.allowed or decision.granted == held.own:  # these units are the caller's
                held.size = 1
            else:
                until = self._demand.expiry(sent_us, decision.verdicts)
                self._keep(held, granted_tokens(self._limits, key, decision, granted_us, (sent_us, until)), now)
            held.answered()
            return held.asked >= HOT

    def _keep(self, held: Held, grant: Grant, now: int) -> None:
        """Keep a grant as the current lease, or as the one after it."""
        held.size, held.waiting = grant.units, max(0, held.waiting - grant.units)
        if now >= grant.until_us:
            self._give_back(grant, grant.units, now)
            return
        self._ending.append(grant)
        self._demand.early.plan(held, grant, now)
        if held.current is not None and held.lease.tokens and now < held.current.until_us:
            held.following = grant
        else:
            self._retire(held, now)
            self._begin(held, grant)

    def failed(self, key: str, error: BaseException | None) -> None:
        """Note that no answer came. A charge that was made is lost; the key starts again from single tokens."""
        with self._lock:
            if (held := self._held.get(key)) is not None:
                held.start_again()
                held.answered(error)

    def saw(self, key: str, decision: Decision) -> bool:
        """Note the server's answer to a request for no tokens ahead; return whether the key is asked for often."""
        now = self._now_us()
        with self._lock:
            if (held := self._held.get(key)) is None:
                return False
            self._demand.see(held, decision.verdicts, now)
            if not decision.allowed:
                self.pace.see_refusal(held, decision, now)
            return held.asked >= HOT

    def refund(self, key: str, units: int, serial: int) -> None:
        """Put units that were paid from a lease back into it; if it has ended, give them back to the server."""
        now = self._now_us()
        with self._lock:
            held = self._held.get(key)
            if held is not None and held.current is not None and held.lease.serial == serial:
                self._tokens.fill(held.lease, units, held.current.units - held.returned)
            elif (ended := self._ended.get(serial)) is not None and ended.key == key:
                self._give_back(ended, units, now)

    def grants(self, key: str) -> tuple[Grant, ...]:
        """Return the leases of a key, in the order in which they will be spent."""
        with self._lock:
            return () if (held := self._held.get(key)) is None else held.grants()

    def tokens(self, grants: tuple[Grant, ...]) -> list[int]:
        """Return the number of tokens of each of these leases that may still be spent."""
        now = self._now_us()
        with self._lock:
            return [tokens_of(self._held.get(grant.key), grant, now) for grant in grants]

    def forget(self, key: str | None = None) -> None:
        """Drop the leases of a key, or of all keys, and give nothing back: the server's state was cleared."""
        with self._lock:
            for each in list(self._held) if key is None else [key]:
                self._tokens.leases.pop(each, None)
                if (held := self._held.pop(each, None)) is not None:
                    held.answered()
            if key is None:
                for book in (self._unused, self._ending, self._ended, self._demand.early):
                    book.clear()

    def disown(self) -> None:
        """Drop everything in a forked process: the leases are the parent's, and a thread of it may hold the lock."""
        self._lock = threading.Lock()
        for held in self._held.values():
            held.answer = None  # the callers that wait are the parent's
        self.forget()

    def unused(self, most: int | None = None) -> list[Unused]:
        """Return the tokens to give back now, at most `most` entries; with -1, all, since the limiter closes."""
        now, everything = self._now_us(), most == -1
        with self._lock:
            for key in self._demand.early.take(now):
                if (held := self._held.get(key)) is not None and (grant := held.current) is not None:
                    self._give_back(grant, self._demand.early.returned(held, grant, self._tokens, now), now)
            while self._ending and (everything or self._ending[0].until_us <= now):
                grant = self._ending.popleft()
                held = self._held.get(grant.key)
                if held is not None and held.current is grant:
                    self._retire(held, now)
                elif held is not None and held.following is grant:
                    held.following = None
                    self._give_back(grant, grant.units, now)
            return self._unused.take(None if everything else most)

    def keep(self, unused: list[Unused]) -> None:
        """Keep unused tokens that could not be sent yet."""
        with self._lock:
            self._unused.put_back(unused, self._now_us())

    def next_return(self) -> int | None:
        """Return the microseconds until tokens must be given back; None if there are none.

        Unused tokens of a lease that has not ended (a refund) are sent when one ends, or after one validity.
        """
        now = self._now_us()
        with self._lock:
            ends = self._demand.early.next_us() + ([self._ending[0].until_us] if self._ending else [])
            if self._unused:
                ends.append(self._unused.since_us + self.terms.validity_us)
            return max(0, min(ends) - now) if ends else None

    def _turn_over(self, key: str, units: int) -> Decision | None:
        """Start the lease that was charged ahead, if the current one has expired or is too small, and pay from both."""
        with self._lock:
            held = self._held.get(key)
            if held is None or held.following is None:
                return self._tokens.spend(key, units)  # another thread may have started it
            now, ended, grant = self._now_us(), held.current, held.following
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
        """Drop the quarter of the keys whose last grant is the oldest."""
        for oldest in list(self._held)[: MOST // 4]:
            held = self._held[oldest]
            if held.asking is None:
                self._retire(held, now)
                if held.following is not None:
                    self._give_back(held.following, held.following.units, now)
                self._tokens.leases.pop(oldest, None)
                del self._held[oldest]
        self._ending = deque(grant for grant in self._ending if grant.key in self._held)

    def _begin(self, held: Held, grant: Grant) -> None:
        self._serial += 1
        held.current, held.following, held.returned = grant, None, 0
        self._tokens.begin(held.lease, grant, self._demand.low(held, grant), self._serial)

    def _close(self, held: Held, now: int) -> int:
        """End the current lease and return its unused tokens; the spent ones set the size of the next lease."""
        if (grant := held.current) is None:
            return 0
        left = self._tokens.drain(held.lease)
        held.current = None
        self._ended[held.lease.serial] = grant
        if len(self._ended) > MOST:
            del self._ended[next(iter(self._ended))]
        self._demand.spent(held, grant, left, now)
        held.counted = 0
        return left

    def _retire(self, held: Held, now: int) -> None:
        """End the current lease, and give back its unused tokens."""
        grant = held.current
        left = self._close(held, now)
        if grant is not None and left:
            self._give_back(grant, left, now)

    def _give_back(self, grant: Grant, units: int, now: int) -> None:
        """Note tokens to give back, unless the bucket has regained them or the window does not count them any more."""
        if units and counts_still(self._limits, grant, units, now):
            self._unused.add(Unused(grant.key, units, grant.marks), now)
