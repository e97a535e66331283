"""A task's turn: that it may run now, or when it should come back."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Self

from headgate.errors import InvalidCall
from headgate.limiter.reservation import Reservation


class Turn:
    """True when the task may run now; then the limit is charged. Around the task it is a context manager.

    False when it should come back in `come_back` seconds, for which nothing was charged.
    """

    def __init__(self, charge: Reservation, come_back: float | None = None, *, in_line: bool = False) -> None:
        self.come_back = come_back or 0.0
        self.in_line = in_line
        """That its place is kept until then: it says so when it asks again, with `came_back=True`."""
        self._runs = come_back is None
        self._charge = charge
        self._outer: Token[Turn | None] | None = None

    def __bool__(self) -> bool:
        return self._runs

    def settle(self, actual: int | Mapping[str, int] | None = None, /, **by_name: int) -> None:
        """Say what it really cost: `settle(431)`, or `settle(tpm=431)` where limits have names; once."""
        if not self:
            raise InvalidCall("this task may not run yet and was not charged: there is nothing to settle")
        self._charge.settle(actual, **by_name)

    def cancel(self) -> None:
        """Give everything back, the place in line too: what it is for is not going to happen."""
        self._charge.cancel()

    def __enter__(self) -> Self:
        self._outer = _running.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """What was spent stays spent: a task that failed may have failed after the call that the limit is for."""
        if self._outer is not None:
            _running.reset(self._outer)


_running: ContextVar[Turn | None] = ContextVar("headgate_turn", default=None)


def settle(actual: int | Mapping[str, int] | None = None, /, **by_name: int) -> None:
    """Say what the task that runs now really cost: `settle(431)`, or `settle(tpm=431)` for limits with names; once."""
    turn = _running.get()
    if turn is None:
        raise InvalidCall("no throttled task runs here: call settle inside one, while it runs")
    turn.settle(actual, **by_name)
