"""`Lease`: the terms on which tokens are charged in advance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headgate.clock import SECOND
from headgate.errors import InvalidCall, InvalidLimit
from headgate.limit import Limit

LONGEST: Final = 3600.0
_EXACT: Final = "a log counts each unit at its instant, and leased tokens are spent later"


@dataclass(frozen=True)
class Lease:
    """`Limiter("10000/second", store="redis://cache", lease=Lease(validity=0.5))`; `lease=True` means the defaults.

    `validity`: seconds within which a token must be spent, from the instant at which it was asked for. In any time t
    the fleet admits at most burst + rate * (t + validity); the burst of a window is its amount. `share`: the largest
    part of the remaining units that one lease may take. `floor`: the fewest tokens in a lease; below that, each
    decision asks the server.
    """

    validity: float = 1.0
    share: float = 0.1
    floor: int = 4

    def __post_init__(self) -> None:
        if not (_is_number(self.validity) and 0.001 <= self.validity <= LONGEST):
            raise InvalidCall(f"a lease is valid for 0.001 to {LONGEST:.0f} seconds; got {self.validity!r}")
        if not (_is_number(self.share) and 0 < self.share <= 1):
            raise InvalidCall(f"the share of a lease is above 0 and at most 1; got {self.share!r}")
        if isinstance(self.floor, bool) or not isinstance(self.floor, int) or self.floor < 2:
            raise InvalidCall(f"the floor of a lease is a whole number from 2; got {self.floor!r}")

    @property
    def validity_us(self) -> int:
        """The validity in whole microseconds, rounded down."""
        return int(self.validity * SECOND)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def checked_terms(given: Lease | bool, limits: tuple[Limit, ...]) -> Lease:
    """Return the terms for these limits, or raise an error that names a limit that cannot be leased."""
    if given is True:
        given = Lease()
    if not isinstance(given, Lease):
        raise InvalidCall(f"lease is True or a Lease(validity=...); got {given!r}")
    for limit in limits:
        if limit.block_us:
            raise InvalidLimit(f"{limit} cannot be leased: a block must hold at once; leased tokens are spent later")
        if limit.step.KIND == "log":
            raise InvalidLimit(f"{limit} cannot be leased: {_EXACT}; use sliding-window/60")
        if limit.step.KIND == "bounds":
            raise InvalidLimit(f"{limit} cannot be leased: its windows have seams of their own; leave lease out")
        if not limit.amount:
            raise InvalidLimit(f"{limit} cannot be leased: it lets no request pass; leave lease out")
        if not (limit.step.LENDS or limit.step.KIND == "window"):
            raise InvalidLimit(f"{limit} cannot be leased: only the bucket family and windows can")
    return given


def ends_with_window(limit: Limit) -> bool:
    """Return whether tokens expire with a window: a fixed one, whose count is forgotten at its end."""
    return limit.step.KIND == "window" and limit.step.kernel(limit.params) == "fixed"
