"""The number of tokens to ask for in advance: by the demand for a key, the units left at the server, and the terms."""

from __future__ import annotations

import math
from typing import Final

from headgate.algorithms import Verdict
from headgate.limit import Limit
from headgate.stores.leases.early import EarlyReturns
from headgate.stores.leases.grants import Grant, Held
from headgate.stores.leases.terms import Lease as Terms
from headgate.stores.leases.terms import ends_with_window

HOT: Final = 3
"""From this number of units asked for lately, tokens of a key are charged in advance."""
COUNTED: Final = 2
"""The demand is counted over this number of validities: a lease that has just expired gives the size of the next."""
GROWTH: Final = 4
"""A lease is at most this many times as large as the one before it."""
LASTS: Final = 0.55
"""The part of its validity for which a lease should last."""
STEADY: Final = 20
"""The most units asked for before that count beside those asked for since, in the rate: a lease of few tokens is spent
sooner or later by chance."""
TURNS: Final = 2
"""The times from one turn to the next for which a lease of a key should last that is near its limit."""
LONGEST: Final = 0.75
"""The longest part of its validity for which a lease should last: the rest is for demand that falls."""
LONGEST_SLIDING: Final = 0.5
"""The same for a sliding window, which loses the units that no request spends: a bucket regains them."""
AHEAD: Final = 4
"""A lease is low, and the next one is asked for, when one part in this many is left."""
OF_A_WINDOW: Final = 1 / 3
"""The part of the rest of a window for which a lease should last: its tokens expire with the window."""
MOST_OF_A_WINDOW: Final = 0.9
"""The same at most, for a process of many: a tenth less than it will likely need, since tokens that are left over are
lost to all, and a process that needs more can ask again."""
FOR_EACH: Final = 1100
"""The microseconds for each process by which this part grows with the fleet: the more processes, the fewer questions
each of them has until the end, at 2,000 a second of all."""


class Demand:
    """The demand for keys under some limits."""

    def __init__(self, limits: tuple[Limit, ...], terms: Terms) -> None:
        self._terms = terms
        self.windows = tuple(at for at, limit in enumerate(limits) if ends_with_window(limit))
        """The indexes of the limits whose tokens expire with a window."""
        sliding = any(not limit.step.LENDS and not ends_with_window(limit) for limit in limits)
        self._longest = LONGEST_SLIDING if sliding else LONGEST
        self._loses = sliding or bool(self.windows)
        self._amount = min((limits[at].amount for at in self.windows), default=0)
        self._period = min((limits[at].period_us for at in self.windows), default=0)
        self.early = EarlyReturns(self._amount, self._period, terms)

    def note(self, held: Held, units: int, now: int) -> None:
        """Count the demand for a key that has no lease."""
        if held.current is None:
            self._count(held, units + held.missed, now)
            held.counted, held.missed = units, 0  # a lease that is bought now pays for these units too
            held.size = max(held.size, units)

    def spent(self, held: Held, grant: Grant, left: int, now: int) -> None:
        """Count the demand for a key whose lease has this number of tokens left, until now or until it expired."""
        used = grant.units - held.returned - left
        asked = used - held.counted + held.missed
        self._count(held, asked, now if held.missed else min(now, grant.until_us))
        held.counted, held.missed = used, 0

    def _count(self, held: Held, units: int, now: int) -> None:
        """Add units that were asked for until now: a few of them change little beside those before them."""
        elapsed = now - held.seen_us
        before = min(held.asked, STEADY) if elapsed <= COUNTED * self._terms.validity_us else 0
        known = before / held.rate if before else 0
        held.asked, held.seen_us = before + units, now
        held.rate = held.asked / max(1000, known + elapsed * (before > 0))

    def see(self, held: Held, verdicts: tuple[Verdict, ...], now: int) -> None:
        """Note the server's state: the units left, and the end of the window."""
        held.left = min(verdict.remaining for verdict in verdicts)
        held.ends_us = min((now + verdicts[at].reset_us for at in self.windows), default=0)
        if self.windows:
            self.early.see(held, now)

    def expiry(self, sent_us: int, verdicts: tuple[Verdict, ...]) -> int:
        """Return the local instant at which tokens expire: with their window, which ends at the reset or later."""
        return sent_us + min([self._terms.validity_us, *(verdicts[at].reset_us for at in self.windows)])

    def low(self, held: Held, grant: Grant) -> int:
        """Return the number of tokens at which the lease after a grant is asked for, ahead of need.

        A short key waits for its turn. A window loses tokens in stock: at its end, or their time.
        """
        return 0 if held.short or (held.crowded and self._loses) else grant.units // AHEAD

    def ahead(self, held: Held, now: int, parts: tuple[int, ...], nodes: int | None) -> int:
        """Return the number of tokens to ask for in advance; `parts` are the units that come back in a tick.

        `nodes` is the number of processes, once it is known.

        A lease has the floor at least and the share at most. Of a bucket, a process asks for the tokens of some ticks
        in any case, if the bucket regains them in that time: otherwise each decision near the limit would be a round
        trip. Such a request may be for more than the units left; the key is short then, and the server sets its share.
        """
        floor, validity = self._terms.floor, self._terms.validity_us
        rest = ((held.ends_us - now - 1) % self._period + 1) if self.windows else validity
        soon = int(held.rate * min(held.wait * TURNS, validity * LONGEST, rest))
        if held.short and not self.windows:
            return soon
        left = self._amount if self.windows and now >= held.ends_us else held.left or 0  # a new window is full
        most = int(left * self._terms.share)
        lasts = min(max(validity * LASTS, held.wait * TURNS), validity * self._longest, rest)
        if held.crowded and not self.windows:
            return int(held.rate * lasts)
        if held.crowded and rest <= validity:  # unused tokens go back before the end
            return min(int(held.rate * rest * self._part(rest, nodes)), most)
        if self.windows:
            lasts = min(lasts, rest * OF_A_WINDOW)
        growth = max(held.size * GROWTH, floor)
        extra = min(int(held.rate * lasts), growth, most)
        back = 0 if self.windows else min(parts) * TURNS
        return max(extra if extra >= floor else 0, min(soon, growth, back))

    def _part(self, rest: int, nodes: int | None) -> float:
        """Return the part of the rest of a crowded window for which a lease should last; more towards its end."""
        if nodes is None:
            return MOST_OF_A_WINDOW
        whole = min(self._period, self._terms.validity_us)
        return min(MOST_OF_A_WINDOW, max(OF_A_WINDOW, FOR_EACH * nodes / math.sqrt(rest * whole)))
