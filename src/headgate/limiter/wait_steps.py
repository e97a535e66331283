"""What a wait queue tells its callers to do next; a limiter does it by thread or by event loop."""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple, Protocol

from headgate.call import Cost
from headgate.engine import Decision
from headgate.limiter.promises import Promise


class Ask(NamedTuple):
    """Reserve the cost if it fits within `wait_us`; the decision is sent back."""

    wait_us: int


class Look(NamedTuple):
    """Peek at a cost; the decision is sent back."""

    cost: int


class Sleep(NamedTuple):
    """Sleep until this instant."""

    at_us: int


class Turn(NamedTuple):
    """Wait for this waiter's turn, until the instant; True is sent back if its turn came."""

    waiter: Waiter
    due_us: int | None


class GiveBack(NamedTuple):
    """Give back a charge that will not be used."""

    decision: Decision


class Depart(NamedTuple):
    """Wait until the promise may be used, and give it up on an error; the promise that was kept is sent back."""

    promise: Promise


class GiveUp(NamedTuple):
    """Give up a promise that will not be used."""

    promise: Promise


Step = Ask | Look | Sleep | Turn | GiveBack | Depart | GiveUp
Steps = Generator[Step, "Decision | Promise | bool | None", Decision]


class Waiter(Protocol):
    """A waiting thread or task."""

    cost: Cost

    def call(self) -> None:
        """Wake the waiter: it is its turn."""
        ...
