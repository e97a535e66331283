"""Tokens that go back before the end of a fixed window, while other processes can still use them.

Tokens are void at the end of their window. If many processes share a key that is scarce, each of them is left with a
few, and the others refuse requests that these would have paid for.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from headgate.engine.lease_cache import LeasedTokens
from headgate.stores.leases.grants import Grant, Held
from headgate.stores.leases.terms import Lease as Terms

PARTS: Final = (0.2, 0.1, 0.05)
"""The parts of a validity, or of a shorter window, before its end at which a process looks for tokens to give back."""
SCARCE: Final = 0.75
"""A window is scarce if it has less than this part of the units left that it would have after even use."""
BEGUN: Final = 0.1
"""The part of a window after which the units that are left show whether it is scarce: before, few were asked for."""
SLACK: Final = 5000
"""Microseconds by which a look may be early: timers are not exact, and the next sweep would come too late."""
SPARE: Final = 1.6
"""Tokens are given back from this many standard deviations on above the demand that is expected until the end."""


class EarlyReturns:
    """The keys whose tokens may have to go back early."""

    def __init__(self, amount: int, period_us: int, terms: Terms) -> None:
        self._amount, self._period, self._validity = amount, period_us, terms.validity_us
        self._before = tuple(int(part * min(period_us, terms.validity_us)) for part in PARTS)
        self._due: deque[tuple[int, str]] = deque()

    def see(self, held: Held, now: int) -> None:
        """Note whether the window of a key is scarce."""
        rest = held.ends_us - now
        scarce = (held.left or 0) * self._period < SCARCE * self._amount * rest
        if scarce or rest < (1 - BEGUN) * self._period:
            held.scarce = scarce

    def plan(self, held: Held, grant: Grant, now: int) -> None:
        """Look at the tokens of a grant again before they are lost with their window."""
        if not (held.scarce and held.crowded) or grant.until_us - grant.sent_us >= self._validity:
            return
        for before in self._before:
            at = grant.until_us - before
            if now < at - SLACK:
                if held.early_us != at:
                    held.early_us = at
                    self._due.append((at, grant.key))
                return

    def next_us(self) -> list[int]:
        """Return the next instant at which tokens have to be looked at, if there is one."""
        return [self._due[0][0]] if self._due else []

    def take(self, now: int) -> list[str]:
        """Take out the keys whose tokens have to be looked at now."""
        keys = []
        while self._due and self._due[0][0] <= now + SLACK:
            keys.append(self._due.popleft()[1])
        return keys

    def clear(self) -> None:
        """Forget all keys."""
        self._due.clear()

    def returned(self, held: Held, grant: Grant, tokens: LeasedTokens, now: int) -> int:
        """Take out the tokens of a lease that will hardly be asked for, and return their number.

        The caller holds the ledger's lock, so that no other thread finds the lease empty meanwhile.
        """
        coming = held.rate * max(0, grant.until_us - now)
        if not coming or held.lease.tokens <= coming + SPARE * coming**0.5:
            units = 0
        else:
            left = tokens.drain(held.lease)
            units = max(0, left - round(coming))
            tokens.fill(held.lease, left - units, grant.units)
        held.returned += units
        self.plan(held, grant, now)
        return units
