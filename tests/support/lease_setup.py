"""A world of nodes that lease, before it runs and after: its setup, and the books of what happened in it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from headgate.stores.leases.terms import Lease

DEFAULT: Final = Lease()

Phases = tuple[tuple[float, tuple[float, ...]], ...]
"""From which second on each node is asked how often a second."""


@dataclass(frozen=True)
class Setup:
    """A world, before it runs. Seconds, and rates a second."""

    seed: int = 0
    limits: str = "1000/second"
    lease: Lease | None = DEFAULT
    """None: every decision is asked for at the server."""
    seconds: float = 5.0
    phases: Phases = ((0.0, (100.0,) * 10),)
    keys: int = 1
    zipf: float = 0.0
    """0: all keys are asked for alike; 1: the second half as often as the first, the third a third as often."""
    most_cost: int = 1
    awaited: str = "no"
    """Which nodes run event loops: yes, no, or half of them."""
    threads: int = 1
    """Of each other node."""
    latency: float = 0.0005
    """One way, on average."""
    deadline: float = 0.05
    loss: float = 0.0
    """Of requests, and of replies."""
    crashes: float = 0.0
    """Of each node; it comes back after a part of `cut_off`, and so do those that were partitioned off."""
    partitions: float = 0.0
    cut_off: float = 1.0
    restarts: tuple[float, ...] = ()
    """When the server forgets everything."""
    stops: tuple[tuple[float, float], ...] = ()
    """When the server does not answer, and for how long."""
    skewed_clocks: bool = False
    drift_ppm: int = 0
    """Clocks run fast or slow by at most so much."""
    remember: float = 1.0
    greedy: bool = False
    """Leases of any size, whatever the demand, at any pace: their safety must not hang on it."""

    @property
    def nodes(self) -> int:
        """How many there are."""
        return len(self.phases[0][1])


class Spent(NamedTuple):
    """Units that were admitted: when by real time, where, and whether from a lease."""

    at: int
    key: str
    units: int
    node: int
    leased: bool


@dataclass
class Ledger:
    """Units, by what became of them; and answers."""

    charged: int = 0
    lost: int = 0
    """Charged, but the reply came too late or never."""
    received: int = 0
    """Granted as leases."""
    handed: int = 0
    """Taken out of the ledger, to be given back."""
    sent_back: int = 0
    given_back: int = 0
    """Arrived there."""
    worn: int = 0
    """Not worth giving back: the bucket has filled up meanwhile, or the window has ended."""
    crashed: int = 0
    asked: int = 0
    answered: int = 0
    yes: int = 0
    waited: int = 0
    """Answers that were not there at once."""
    turned_away: int = 0
    trips: Counter[int] = field(default_factory=Counter)
    """Commands, by mode."""
    by_second: Counter[int] = field(default_factory=Counter)
    """Commands about keys, by the second in which they were sent."""
    told: list[int] = field(default_factory=list)
    """The waits of refusals, in microseconds."""
    misled: int = 0
    """Callers who came back when they were told to, and were refused by what was known before."""
