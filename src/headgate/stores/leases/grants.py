"""What the ledgers of leases are about: tokens as they were charged, as they are held, and as they go back."""

from __future__ import annotations

from typing import NamedTuple

from headgate.engine.lease_cache import Lease


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


class Held:
    """One key."""

    __slots__ = ("asked", "asking", "current", "ends_us", "following", "lease", "left", "rate", "seen_us", "size")

    def __init__(self, lease: Lease, now: int) -> None:
        self.lease = lease
        self.current: Grant | None = None
        self.following: Grant | None = None
        """Bought ahead; its turn comes when the current one is spent or void."""
        self.asking: int | None = None
        """Permits are on their way, asked for at this instant."""
        self.size = 1
        """Of the last grant."""
        self.rate = 0.0
        """Units a microsecond that were spent here lately."""
        self.left: int | None = None
        """What the server had left when it was last asked."""
        self.ends_us = 0
        """When the window ends that was open then, or about when."""
        self.asked = 0
        self.seen_us = now
        """Of a key that has no lease: units asked for, and since when."""
