"""`Needs`: what somebody wants of a limit, as the answers to six questions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

from headgate.clock import MINUTE, SECOND
from headgate.errors import InvalidCall
from headgate.limit import Limit, write_period
from headgate.wording import shown, suggestion

Exactness = Literal["rough", "close", "exact"]
Home = Literal["memory", "shared", "redis"]
BUDGET: Final = 256 * 2**20
"""Bytes: the bound of a `MemoryStore`, unless it is given another."""
MOST_CLIENTS: Final = 10**12


@dataclass(frozen=True)
class Needs:
    """The needs of an app: an amount per period, and how much each property of an algorithm matters."""

    amount: int = 100
    period_us: int = MINUTE
    bursts: bool = True
    """Whether a client may send many requests at once after a pause."""
    exactness: Exactness = "rough"
    """The most in any period: `exact`, the amount and never more; `close`, about the amount; `rough`, at worst twice
    as much."""
    smooth: bool = False
    """Whether requests wait and leave at even intervals, in place of being refused."""
    clients: int = 10_000
    """Clients with quota in use at one time."""
    memory: int = BUDGET
    """Bytes that their states may take."""
    store: Home = "memory"

    def __post_init__(self) -> None:
        Limit(self.amount, per=self.period_us / SECOND)  # its error names the numbers that would fit
        for name, most in (("amount", 2**53), ("clients", MOST_CLIENTS), ("memory", 2**60)):
            value = getattr(self, name)
            if type(value) is not int or not 1 <= value <= most:
                raise InvalidCall(f"{name} is a whole number from 1; got {shown(value)}")
        for name, kind in (("exactness", Exactness), ("store", Home)):
            if getattr(self, name) not in get_args(kind):
                value = str(getattr(self, name))
                raise InvalidCall(f"unknown {name} {shown(value)}: {suggestion(value, get_args(kind))}")

    @property
    def rate(self) -> str:
        """The amount and the period, as a limit writes them."""
        return f"{self.amount}/{self.period}"

    @property
    def period(self) -> str:
        """The period in words."""
        return write_period(self.period_us)
