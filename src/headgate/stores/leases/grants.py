"""The records of a lease ledger: tokens as the server charged them, as a key holds them, and as they go back."""

from __future__ import annotations

from typing import NamedTuple

from headgate.engine.lease_cache import Lease


class Grant(NamedTuple):
    """Tokens as the server charged them."""

    key: str
    units: int
    marks: tuple[tuple[int, int], ...]
    """The mark of the charge under each limit, as of the instant of the grant."""
    sent_us: int
    until_us: int
    left: tuple[int, ...]
    """The units that the server had left besides these tokens, under each limit."""
    resets: tuple[int, ...]
    """The instants at which the server's states are full again."""


class Unused(NamedTuple):
    """Tokens to give back."""

    key: str
    units: int
    marks: tuple[tuple[int, int], ...]


class Held:
    """The leases of one key, and its recent demand."""

    __slots__ = ("asked", "asking", "current", "ends_us", "following", "lease", "left", "rate", "seen_us", "size")

    def __init__(self, lease: Lease, now: int) -> None:
        self.lease = lease
        self.current: Grant | None = None
        self.following: Grant | None = None
        """The lease charged ahead, which is used once the current one is spent or has expired."""
        self.asking: int | None = None
        """The instant at which tokens were asked for that have not arrived yet."""
        self.size = 1
        """The number of tokens in the last grant."""
        self.rate = 0.0
        """Units per microsecond that this process spent lately."""
        self.left: int | None = None
        """The units that the server had left when it was last asked."""
        self.ends_us = 0
        """About the instant at which the window ends that was open then."""
        self.asked = 0
        self.seen_us = now
        """For a key that has no lease: the units asked for (`asked`) since `seen_us`."""
