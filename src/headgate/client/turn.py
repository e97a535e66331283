"""The turn of a call: the instant from which it may be sent, by the limits of its key and its pauses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from headgate.client.deadlines import time_left
from headgate.client.key_state import KeyState
from headgate.client.report import Tally
from headgate.client.sides import Side
from headgate.clock import SECOND, Clock
from headgate.errors import BudgetExhausted
from headgate.steps import Steps

LONGEST_TURN: Final = 3600.0
"""The most seconds that a call waits for its turn: limiters promise no longer delay."""


class Turns:
    """Takes turns for the calls of a budget."""

    def __init__(self, side: Side, clock: Clock, tally: Tally, longest_pause: float) -> None:
        self._side, self._clock = side, clock
        self._tally = tally
        self._longest_pause = longest_pause

    def first(self, state: KeyState) -> Steps[None]:
        """Wait until the server has answered another call, or let this call be the first."""
        left = time_left()
        if not (yield self._side.first(state.first, left)):
            raise BudgetExhausted(state.key, "the server has not answered its first call", left or 0.0)

    def take(self, state: KeyState, costs: Mapping[str, int]) -> Steps[Any]:
        """Wait for the turn of a call; return its reservation, for which the call is charged."""
        began_us = self._clock.now_us()
        while True:
            yield from self._wait_out_pause(state)
            paces = state.learned.at(self._clock.now_us())
            left = time_left()
            reservation = yield self._side.reserve(paces, state.key, costs, LONGEST_TURN if left is None else left)
            if not reservation:
                yield from self._wait(state, reservation.retry_after, "the budget is used up")
                continue
            if reservation.delay:
                paused = pause_in(reservation) or (yield from self._arrive(state, reservation))
                if paused:  # the place is given back: callers that pass at the end of a pause are paced anew
                    yield reservation.cancel()
                    state.pause(self._clock.now_us(), paused)
                    continue
            waited = self._clock.now_us() - began_us
            if waited > 0:
                self._tally.add("waited", waited / SECOND)
            return reservation

    def _wait_out_pause(self, state: KeyState) -> Steps[None]:
        """Wait until a pause is over that this process knows of."""
        paused = state.pause_left(self._clock.now_us())
        if paused:
            yield from self._wait(state, paused, "the server asked for a pause")

    def _arrive(self, state: KeyState, reservation: Any) -> Steps[float]:  # noqa: ANN401 - of either limiter
        """Wait for the instant of a reservation; return how long the key is paused by then."""
        self._tally.tell("wait", state.key, reservation.delay)
        try:
            yield reservation.wait()
            paces = state.learned.paces
            paused: float = yield self._side.paused(paces, state.key)
        except BaseException:
            yield reservation.cancel()
            raise
        return paused

    def _wait(self, state: KeyState, seconds: float, reason: str) -> Steps[None]:
        """Wait, unless that is longer than a call may wait."""
        left = time_left()
        if seconds > self._longest_pause or (left is not None and seconds > left):
            raise BudgetExhausted(state.key, reason, seconds)
        self._tally.tell("wait", state.key, seconds, reason)
        yield self._side.sleep(seconds)


def pause_in(reservation: Any) -> float:  # noqa: ANN401
    """Return the seconds for which the key was paused when the reservation was made."""
    decision = reservation.decision
    each = zip(decision.calls, decision.verdicts, strict=True)
    return max((verdict.retry_us for call, verdict in each if call.limit.guards), default=0) / SECOND
