"""LeasedTokens: tokens charged at a server in advance, spent without asking the server.

Every token was charged under each of the limits. lease_cache.pxi is the native twin of this file.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable
from typing import Any

from headgate.call import Cost
from headgate.engine.choice import NATIVE, Decision, Tally
from headgate.engine.modes import LEASED, read_clock
from headgate.forks import after_fork
from headgate.limit import Given, Limit


class Lease:
    """The tokens of one key."""

    __slots__ = ("left", "low", "tokens", "resets", "serial", "until_us")

    def __init__(self) -> None:
        self.tokens = 0
        self.low = 0
        """At this number of tokens or fewer, the next lease is due."""
        self.until_us = 0
        """The instant at which the tokens expire."""
        self.left: tuple[int, ...] = ()
        """The units that the server had left besides these tokens, under each limit."""
        self.resets: tuple[int, ...] = ()
        """The instant at which the server's state is full again, under each limit."""
        self.serial = 0
        """The serial number of the grant that the tokens come from."""


class LeasedTokens:
    """The leases of some limits, by key."""

    def __init__(self, decider: Any, slow: Callable[[str, Cost, Given | None], Decision]) -> None:  # noqa: ANN401
        self.leases: dict[str, Lease] = {}
        self._clock = decider.engine.clock
        self._limits: tuple[Limit, ...] = decider.limits
        self._slow = slow
        self.tally = Tally()
        """Counts the hits that a lease pays."""
        self._renew_lock()
        after_fork(self._renew_lock)

    def open(self, key: str) -> Lease:
        """Return the key's lease, a new empty one if it had none."""
        return self.leases.setdefault(key, Lease())

    def hit(self, key: str, cost: Cost = 1, *, limit: Given | None = None) -> Decision:
        """Spend one token of the lease; every other case is passed to the slow path."""
        if limit is None and type(cost) is int and cost == 1 and isinstance(key, str):
            lease = self.leases.get(key)
            if lease is not None and lease.tokens > lease.low:
                decision = self.spend(key, 1)
                if decision is not None:
                    self.tally.count(decision)
                    return decision
        return self._slow(key, cost, limit)

    def spend(self, key: str, units: int) -> Decision | None:
        """Spend from the lease, down to its last token; None if it has too few tokens or has expired."""
        lease = self.leases.get(key)
        if lease is None or units <= 0:
            return None
        now = read_clock(self._clock)
        with self._lock:
            if lease.tokens < units or now >= lease.until_us:
                return None
            lease.tokens -= units
            tokens, serial, left, resets = lease.tokens, lease.serial, lease.left, lease.resets
        answers: list[int] = []
        for beside, reset in zip(left, resets, strict=True):
            answers += (1, beside + tokens, 0, max(0, reset - now), LEASED, serial)
        return Decision(self._limits, key, (units,) * len(self._limits), answers)

    def drain(self, lease: Lease) -> int:
        """Take out the remaining tokens, and return their number."""
        with self._lock:
            left, lease.tokens = lease.tokens, 0
        return left

    def begin(self, lease: Lease, grant: Any, low: int, serial: int) -> None:  # noqa: ANN401 - a Grant of the ledger
        """Start to spend the tokens of a grant."""
        with self._lock:
            lease.tokens, lease.low, lease.until_us, lease.serial = grant.units, low, grant.until_us, serial
            lease.left, lease.resets = grant.left, grant.resets

    def fill(self, lease: Lease, units: int, most: int) -> None:
        """Add units to the lease, up to `most`."""
        with self._lock:
            lease.tokens = min(most, lease.tokens + units)

    def _renew_lock(self) -> None:
        """A fork may have copied the lock while another thread held it."""
        self._lock = threading.Lock()


def leased_tokens_for(decider: Any, slow: Callable[[str, Cost, Given | None], Decision]) -> LeasedTokens:  # noqa: ANN401
    """Return the leased tokens of the engine in use."""
    if NATIVE:
        tokens: LeasedTokens = importlib.import_module("headgate.engine.native").LeasedTokens(decider, slow)
        return tokens
    return LeasedTokens(decider, slow)
