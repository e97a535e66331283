"""The turn of a call: the instant from which it may be sent, by the limits of its key and its pauses.

The callers of a key wait in a line of their process. The first of them reserves its place in the store, a moment ahead,
and leaves the line; so the others follow a pace that changes and a pause that begins, and a caller that gives up has
taken nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from headgate.client.deadlines import time_left
from headgate.client.key_state import KeyState
from headgate.client.pacing import found
from headgate.client.report import Tally
from headgate.client.sides import Side
from headgate.clock import SECOND, Clock
from headgate.errors import BudgetExhausted
from headgate.limit import Limit
from headgate.steps import Steps

LEAD: Final = 0.2
"""The most seconds that a place is reserved ahead: longer than a trip to the store and a late wake-up."""
SHORTEST_SLEEP: Final = 0.001
LONGEST_SLEEP: Final = 1.0
"""The seconds after which the first in line looks again: limits and rates may have changed."""
UNITS_COME_BACK: Final = 0.1
"""The seconds after which a call that does not fit into a window looks again: calls that end give units back."""
USED_UP: Final = "the budget is used up"


Costs = Callable[[], Mapping[str, int]]
"""Returns the cost of a call by the names of limits: 1 where there is none. It is asked when the call reserves, since
a call that has waited knows more."""


def one() -> Mapping[str, int]:
    """Return the costs of a call that counts once for every limit."""
    return {}


class Fitted(NamedTuple):
    """The place of a call in windows of tokens."""

    windows: tuple[Limit, ...]
    reservation: Any
    expected: Mapping[str, int]
    """The costs by which the place was chosen; more is charged."""
    since_us: int


class ChargedCall(NamedTuple):
    """A call that may be sent now."""

    reservation: Any
    paid: Mapping[str, int]
    """Units that the credit of the key has paid, beside those of the reservation."""
    fitted: Fitted | None = None
    """The place of its tokens in the windows of the server, if it counts any."""


class CallQueue:
    """Lets the calls of a budget wait for their turn, and charges them."""

    def __init__(self, side: Side, clock: Clock, tally: Tally, headroom: float, longest_wait: float) -> None:
        self._side, self._clock = side, clock
        self._tally = tally
        self._headroom = headroom
        self._longest_wait = longest_wait

    def is_first(self, state: KeyState) -> Steps[bool]:
        """Wait until the server has answered a call. Return True if none was: this call is the only one under way."""
        yield from self._enter(state, state.line.ticket(), "the server has not answered its first call")
        if state.answered:
            state.line.leave()
        return not state.answered

    def take(self, state: KeyState, costs_of: Costs, alone: bool = False) -> Steps[ChargedCall]:
        """Wait for the turn of a call, which is charged for it; `alone`: the caller is inside the line already."""
        began_us = self._clock.now_us()
        turn = None
        if alone or not state.line.busy:
            turn = yield from self._reserve(state, costs_of, waits=alone)
            if turn is not None and not turn.reservation.delay:
                return turn
        ticket = state.line.ticket()
        while turn is None or (yield from self._paused(state, turn)):
            if alone:
                turn = yield from self._reserve(state, costs_of, waits=True)
            else:
                turn = yield from self._stand_in_line(state, costs_of, ticket)
        self._tally.add("waited", (self._clock.now_us() - began_us) / SECOND)
        return turn

    def _stand_in_line(self, state: KeyState, costs_of: Costs, ticket: int) -> Steps[ChargedCall]:
        yield from self._enter(state, ticket, USED_UP)
        try:
            while (turn := (yield from self._reserve(state, costs_of, waits=True))) is None:
                pass
            return turn
        finally:
            state.line.leave()

    def _enter(self, state: KeyState, ticket: int, reason: str) -> Steps[None]:
        """Wait until this call is let into the line of its key; refuse it if it cannot be within its deadline."""
        left = time_left()
        if left is not None:
            rate = state.finder.sending(self._clock.now_us())
            wait = len(state.line) / rate if rate else 0.0
            if wait > left or not (yield self._side.enter(state.line, ticket, left)):
                raise BudgetExhausted(state.key, reason, max(wait, left))
        else:
            yield self._side.enter(state.line, ticket, None)

    def _reserve(self, state: KeyState, costs_of: Costs, waits: bool) -> Steps[ChargedCall | None]:
        """Reserve a place that is at most a moment ahead; None if there is none, after a sleep if the call waits."""
        now_us = self._clock.now_us()
        wait = yield from self._until_possible(state, now_us)
        if not wait:
            costs = costs_of()
            paid = state.credit.spend(costs, now_us) if costs else {}
            charged = {name: cost - paid.get(name, 0) for name, cost in costs.items()} if paid else costs
            try:
                reservation = yield self._side.reserve(state.paces(now_us), state.key, charged, LEAD)
            except BaseException:
                state.credit.keep(paid, now_us)
                raise
            if reservation:
                state.promised_us = now_us + reservation.decision.retry_us
                return (yield from self._fit(state, ChargedCall(reservation, paid), costs, waits))
            state.credit.keep(paid, now_us)
            paused = pause_in(reservation)
            if paused:
                state.find_paused(now_us, paused)
            wait = max(reservation.retry_after - LEAD, SHORTEST_SLEEP)
            slow_until_us = state.learned.spread_until_us
            if slow_until_us:  # the pace is another one then
                wait = min(wait, max((slow_until_us - now_us) / SECOND, SHORTEST_SLEEP))
            self._check(state, wait, USED_UP)
        if waits:
            yield self._side.sleep(min(wait, LONGEST_SLEEP))
        return None

    def _fit(
        self, state: KeyState, turn: ChargedCall, costs: Mapping[str, int], waits: bool
    ) -> Steps[ChargedCall | None]:
        """Wait until the tokens of a call fit into its server's windows. The pace stays charged, so other processes
        leave room for a large call; a call that does not wait gives its turn back."""
        windows = state.learned.windows
        if not windows or not costs:
            return turn
        try:
            while True:
                now_us, spreads = self._clock.now_us(), state.spreads
                charged = spreads.charges(windows, costs)
                reservation = yield self._side.fit(windows, spreads.rooms(windows), state.key, charged)
                if reservation:
                    return turn._replace(fitted=Fitted(windows, reservation, costs, now_us))
                if not waits:
                    break
                wait = min(max(reservation.retry_after, SHORTEST_SLEEP), UNITS_COME_BACK)
                self._check(state, wait, USED_UP)
                yield self._side.sleep(wait)
        except GeneratorExit:  # thrown away with its event loop: nothing can be awaited, and the place stays charged
            raise
        except BaseException:
            yield from self._give_back(state, turn)
            raise
        yield from self._give_back(state, turn)
        return None

    def _until_possible(self, state: KeyState, now_us: int) -> Steps[float]:
        """Return the seconds until the store may be asked: a pause, a found rate, and places that are taken already."""
        paused = state.pause_left(now_us)
        if paused:
            self._check(state, paused, "the server asked for a pause")
            return paused
        ahead = (state.promised_us - now_us) / SECOND - LEAD / 2
        if ahead > 0:
            return ahead
        rate = state.finder.rate(now_us)
        if rate is None or state.learned.rate is not None:
            return 0.0
        decision = yield self._side.hit_here(found(rate, self._headroom), state.key)
        if decision:
            return 0.0
        state.finder.waited()
        self._check(state, decision.retry_after, "the server refuses more")
        return float(decision.retry_after)

    def _paused(self, state: KeyState, turn: ChargedCall) -> Steps[bool]:
        """Wait for the instant of a turn; return True if the key is paused by then, and the place was given back."""
        reservation = turn.reservation
        paused = pause_in(reservation)
        try:
            if not paused:
                if not reservation.delay:
                    return False
                self._tally.tell("wait", state.key, reservation.delay)
                yield reservation.wait()
                paused = yield self._side.paused(state.learned.paces, state.key)
                if not paused:
                    return False
        except GeneratorExit:  # thrown away with its event loop: nothing can be awaited, and the place stays charged
            raise
        except BaseException:
            yield from self._give_back(state, turn)
            raise
        yield from self._give_back(state, turn)
        state.find_paused(self._clock.now_us(), paused)
        return True

    def _give_back(self, state: KeyState, turn: ChargedCall) -> Steps[None]:
        state.credit.keep(turn.paid, self._clock.now_us())
        yield turn.reservation.cancel()
        if turn.fitted is not None:
            yield turn.fitted.reservation.cancel()

    def _check(self, state: KeyState, seconds: float, reason: str) -> None:
        """Refuse a call that would have to wait beyond its deadline, or too long although it is the first in line."""
        left = time_left()
        if seconds > self._longest_wait or (left is not None and seconds > left):
            raise BudgetExhausted(state.key, reason, seconds)


def pause_in(reservation: Any) -> float:  # noqa: ANN401 - of either limiter
    """Return the seconds for which the key was paused when the reservation was made."""
    decision = reservation.decision
    each = zip(decision.calls, decision.verdicts, strict=True)
    return max((verdict.retry_us for call, verdict in each if call.limit.guards), default=0) / SECOND
