"""The shortest way of a request: a place is free at once, and the answer tells nothing that a budget must hear.

Any other request goes the long way, from the point where it turned out to be another one. Beside a request, the way of
which fills the caches of a processor, each function that is called costs as much as ten of them in a loop. So the two
methods are long, and the same but for `await`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from headgate.client.call_queue import LEAD
from headgate.client.dialects import tells_nothing
from headgate.client.exchange import Exchange, FirstAttempt
from headgate.client.key_state import KeyState
from headgate.client.key_states import KeyStates
from headgate.client.outgoing import Outgoing
from headgate.client.report import Tally
from headgate.client.sides import Side
from headgate.clock import SECOND, Clock
from headgate.errors import BudgetExhausted
from headgate.shed import outgoing_headers, request_class
from headgate.steps import Steps, run, run_awaiting

FULL: Final = round(LEAD * SECOND)
"""After a refusal requests reserve for so long: the store is asked once for a place, not twice."""
Hit = Callable[[str], Any]


class FastPath:
    """Sends requests of one budget, in threads or in event loops."""

    def __init__(
        self, exchange: Exchange, side: Side, clock: Clock, tally: Tally, states: KeyStates, raises: bool
    ) -> None:
        self._exchange, self._side, self._clock, self._tally = exchange, side, clock, tally
        self._raises = raises
        self._states, self._by_host = states, states.by_host

    def run(self, request: Outgoing) -> Any:  # noqa: ANN401 - the transport's response
        """Send a request in this thread, in its turn, and return the last response."""
        try:
            state = self._by_host.get(request.host) or self._states.of(request)
            began_us = self._clock.now_us()
            hit = state.hit_in_threads or self._look(state, began_us)
            if hit is None or not hit(state.key).allowed:
                return run(self._wait(state, request, began_us, hit))
            counts = state.pending_counts
            if began_us >= counts.ends_us:
                counts.begin(began_us)
            counts.sent()
            self._tally.sent()
            if request_class.get() is not None:
                request.added = outgoing_headers()
            try:
                response = request.send()
            except Exception as error:
                return run(self._exchange.send(state, request, FirstAttempt(began_us, error=error)))
            if request.answered:
                status, headers = request.head(response)
                if status >= 400 or not tells_nothing(headers):
                    return run(self._exchange.send(state, request, FirstAttempt(began_us, response)))
                counts.passed()
            return response
        except BudgetExhausted as error:
            if self._raises:
                raise
            return request.refusal(error)

    async def run_async(self, request: Outgoing) -> Any:  # noqa: ANN401
        """Send a request in the running event loop, in its turn, and return the last response."""
        try:
            state = self._by_host.get(request.host) or self._states.of(request)
            began_us = self._clock.now_us()
            hit = state.hit_in_loops or self._look(state, began_us)
            if hit is None or not (await hit(state.key)).allowed:
                return await run_awaiting(self._wait(state, request, began_us, hit))
            counts = state.pending_counts
            if began_us >= counts.ends_us:
                counts.begin(began_us)
            counts.sent()
            self._tally.sent()
            if request_class.get() is not None:
                request.added = outgoing_headers()
            try:
                response = request.send()
                if hasattr(response, "__await__"):
                    response = await response
            except Exception as error:
                return await run_awaiting(self._exchange.send(state, request, FirstAttempt(began_us, error=error)))
            if request.answered:
                status, headers = request.head(response)
                if status >= 400 or not tells_nothing(headers):
                    return await run_awaiting(self._exchange.send(state, request, FirstAttempt(began_us, response)))
                counts.passed()
            return response
        except BudgetExhausted as error:
            if self._raises:
                raise
            return request.refusal(error)

    def _look(self, state: KeyState, now_us: int) -> Hit | None:
        """Return how a place is taken at once, if the key is calm and calls cost 1."""
        if self._states.usage is not None or not state.is_calm(now_us):
            return None
        hit = self._side.calm_hit(state)
        if state.is_calm(now_us):  # a change that came meanwhile may have found nothing to end
            return hit
        state.stir()
        return None

    def _wait(self, state: KeyState, request: Outgoing, now_us: int, hit: Hit | None) -> Steps[Any]:
        """Send a request for which there is no place at once."""
        if hit is not None:
            state.full_until_us = now_us + FULL
            state.stir()
        return self._exchange.send(state, request)
