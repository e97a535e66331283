"""A task's turn: whether it may run now, or when it comes back."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Self

from headgate.errors import InvalidCall
from headgate.limiter import Reservation


class Turn:
    """True if the task may run now: the limit is charged, and the task runs in `with turn:`.

    False if the task must come back in `come_back` seconds: the limit is not charged.
    """

    def __init__(self, charge: Reservation, come_back: float | None = None, *, in_line: bool = False) -> None:
        self.come_back = come_back or 0.0
        self.in_line = in_line
        """True if the task keeps its place until then: pass `came_back=True` when it asks again."""
        self._runs = come_back is None
        self._charge = charge
        self._outer: Token[Turn | None] | None = None

    def __bool__(self) -> bool:
        return self._runs

    def settle(self, actual: int | Mapping[str, int] | None = None, /, **by_name: int) -> None:
        """Replace the charge by the real cost, once: `settle(431)`, or `settle(tpm=431)` for limits with names."""
        if not self:
            raise InvalidCall("this task may not run yet and was not charged: there is nothing to settle")
        self._charge.settle(actual, **by_name)

    def cancel(self) -> None:
        """Give back the charge, or the place in line, of a task that will not run."""
        self._charge.cancel()

    def __enter__(self) -> Self:
        self._outer = _running.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the limit charged: a task may have failed after the call that the limit is for."""
        if self._outer is not None:
            _running.reset(self._outer)


_running: ContextVar[Turn | None] = ContextVar("headgate_turn", default=None)


def settle(actual: int | Mapping[str, int] | None = None, /, **by_name: int) -> None:
    """Replace the charge of the running task by its real cost, once: `settle(431)`, or `settle(tpm=431)` by name."""
    turn = _running.get()
    if turn is None:
        raise InvalidCall("no throttled task runs here: call settle inside one, while it runs")
    turn.settle(actual, **by_name)
