"""`Permit`: leave to be in flight, until it ends.

This file is written once and built twice, as `decision.py` is: the native engine includes its text as a C class.
"""

from collections.abc import Callable
from types import TracebackType
from typing import Literal

from headgate.decision import Decision
from headgate.errors import InvalidCall, RateLimited

Outcome = Literal["success", "ignored", "dropped"]
"""How it went. `dropped`: too slow, or refused further on; that is what an adaptive limit goes by. `ignored`: it says
nothing about the load."""
OUTCOMES = ("success", "ignored", "dropped")
ENDED = "this permit has ended, and a permit cannot be used twice: take another with limiter.permit(key)"


def checked_outcome(outcome: str) -> None:
    """An error shows what is none."""
    if outcome not in OUTCOMES:
        raise InvalidCall(f"unknown outcome {outcome!r}: a permit ends as one of {', '.join(OUTCOMES)}")


class Permit:
    """Leave to be in flight: `with limiter.permit("k") as permit:`. True where it was given.

    It ends when the block is left or `release` is called, whichever comes first; ending it again does nothing. A block
    that is left by an exception ends it as `ignored`.
    """

    __slots__ = ("_give_back", "decision", "outcome")

    def __init__(self, decision: Decision, give_back: Callable[[Decision], object]) -> None:
        self.decision = decision
        self.outcome: Outcome | None = None
        """How it ended; None while it is held, or where it was not given."""
        self._give_back = give_back

    def __bool__(self) -> bool:
        return self.decision.allowed

    def release(self, outcome: Outcome = "success") -> bool:
        """End it, so; whether it was this call that ended it."""
        checked_outcome(outcome)
        if self.outcome is not None or not self.decision.allowed:
            return False
        self.outcome = outcome
        self._give_back(self.decision)
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
        if self.outcome is None and self.decision.allowed:  # as `release`, which is a call more
            self.outcome = "success" if kind is None else "ignored"
            self._give_back(self.decision)

    def __repr__(self) -> str:
        state = "refused" if not self.decision.allowed else self.outcome or "held"
        return f"<Permit {state}, {self.decision!r}>"
