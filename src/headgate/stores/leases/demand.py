"""How many tokens to ask for in advance: by the demand for a key, the units left at the server, and the terms."""

from __future__ import annotations

from typing import Final

from headgate.algorithms import Verdict
from headgate.limit import Limit
from headgate.stores.leases.grants import Held
from headgate.stores.leases.terms import Lease as Terms
from headgate.stores.leases.terms import ends_with_window

HOT: Final = 3
"""From this number of units asked for lately, tokens of a key are charged in advance."""
COUNTED: Final = 2
"""The demand is counted over this number of validities: a lease that has just expired gives the size of the next."""
GROWTH: Final = 4
"""A lease is at most this many times as large as the one before it."""
LASTS: Final = 0.5
"""The part of its validity for which a lease should last."""
OF_A_WINDOW: Final = 1 / 3
"""The part of the rest of a window for which a lease should last: its tokens expire with the window."""


class Demand:
    """The demand for keys under some limits."""

    def __init__(self, limits: tuple[Limit, ...], terms: Terms) -> None:
        self._terms = terms
        self.windows = tuple(at for at, limit in enumerate(limits) if ends_with_window(limit))
        """The indexes of the limits whose tokens expire with a window."""
        self._period = min((limits[at].period_us for at in self.windows), default=0)

    def note(self, held: Held, units: int, now: int) -> None:
        """Count the demand for a key that has no lease."""
        if held.current is not None:
            return
        if now - held.seen_us > COUNTED * self._terms.validity_us:
            held.asked, held.seen_us = 0, now
        held.asked += units
        held.rate = held.asked / max(1000, now - held.seen_us)

    def see(self, held: Held, verdicts: tuple[Verdict, ...], now: int) -> None:
        """Note the server's state: the units left, and the end of the window."""
        held.left = min(verdict.remaining for verdict in verdicts)
        held.ends_us = min((now + verdicts[at].reset_us for at in self.windows), default=0)

    def ahead(self, held: Held, now: int) -> int:
        """Return the number of tokens to ask for in advance; 0 if that is fewer than the floor."""
        floor, lasts = self._terms.floor, self._terms.validity_us * LASTS
        if self.windows:
            lasts = min(lasts, ((held.ends_us - now - 1) % self._period + 1) * OF_A_WINDOW)
        most = min(max(held.size * GROWTH, floor), int((held.left or 0) * self._terms.share))
        extra = min(int(held.rate * lasts), most)
        return 0 if extra < floor else extra
