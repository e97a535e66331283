"""`Permit`: the right to be in flight, until it ends.

Like `decision.py`, this file is built twice: the native engine compiles its text as a C class.
"""

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Literal

from headgate.decision import Decision
from headgate.errors import InvalidCall, RateLimited
from headgate.forks import after_fork

Outcome = Literal["success", "ignored", "dropped"]
"""How the work of a permit ended. `dropped`: it was too slow, or another server refused it; an adaptive limit uses
this. `ignored`: it says nothing about the load."""
OUTCOMES = ("success", "ignored", "dropped")
ENDED = "this permit has ended, and a permit cannot be used twice: take another with limiter.permit(key)"

_ending = threading.Lock()
"""Held while a permit ends; the native engine has a lock for each permit instead (setup.py)."""


def _renew_ending() -> None:
    """Replace the lock after a fork, because another thread may have held it during the fork."""
    global _ending
    _ending = threading.Lock()


after_fork(_renew_ending)


def checked_outcome(outcome: str) -> None:
    """Raise `InvalidCall` for an unknown outcome."""
    if outcome not in OUTCOMES:
        raise InvalidCall(f"unknown outcome {outcome!r}: a permit ends as one of {', '.join(OUTCOMES)}")


class Permit:
    """The right to be in flight: `with limiter.permit("k") as permit:`. True if it was granted.

    A permit ends when the block ends or when `release` is called, whichever comes first; a second end has no effect. A
    block that raises ends the permit as `ignored`.
    """

    __slots__ = ("_give_back", "decision", "outcome")

    def __init__(self, decision: Decision, give_back: Callable[[Decision], object]) -> None:
        self.decision = decision
        self.outcome: Outcome | None = None
        """How the permit ended; None while it is held, and for a refused permit."""
        self._give_back = give_back

    def __bool__(self) -> bool:
        return self.decision.allowed

    def release(self, outcome: Outcome = "success") -> bool:
        """Release the permit with this outcome. True if this call released it, False if it had ended already."""
        checked_outcome(outcome)
        if not self._claim_end(outcome):
            return False
        self._give_back(self.decision)
        return True

    def _claim_end(self, outcome: Outcome) -> bool:
        """Set the outcome; False if the permit has ended already, or was refused."""
        with _ending:
            if self.outcome is not None or not self.decision.allowed:
                return False
            self.outcome = outcome
            return True

    def __enter__(self) -> "Permit":
        if not self.decision.allowed:
            raise RateLimited(self.decision)
        if self.outcome is not None:
            raise InvalidCall(ENDED)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._claim_end("success" if kind is None else "ignored"):
            self._give_back(self.decision)

    def __repr__(self) -> str:
        state = "refused" if not self.decision.allowed else self.outcome or "held"
        return f"<Permit {state}, {self.decision!r}>"
