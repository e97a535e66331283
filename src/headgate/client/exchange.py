"""The attempts of one request: each in its turn, until an answer is one for the caller."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from headgate.client.call_queue import CallQueue, one
from headgate.client.dialects import read
from headgate.client.key_state import KeyState
from headgate.client.outgoing import Outgoing
from headgate.client.report import Tally
from headgate.client.retrying import Retries
from headgate.client.server_limits import ServerResponse
from headgate.client.settlement import Settlement
from headgate.client.sides import Side
from headgate.client.tries import Tries
from headgate.clock import DAY, SECOND, Clock
from headgate.errors import BudgetExhausted
from headgate.shed import outgoing_headers, request_class
from headgate.steps import Steps

REQUEST_ID_OF_GITHUB: Final = "x-github-request-id"
"""GitHub tells of its secondary limits in the body only."""

LONGEST_PAUSE: Final = DAY / SECOND
"""Limiters pause for no longer; a server that still refuses then is asked once a day."""


class FirstAttempt(NamedTuple):
    """The outcome of a first attempt that was sent at once."""

    began_us: int
    response: Any = None
    error: Exception | None = None


class Exchange:
    """Sends requests of one budget, in threads or in event loops."""

    def __init__(self, turns: CallQueue, side: Side, clock: Clock, tally: Tally, retries: Retries) -> None:
        self._turns, self._side, self._clock = turns, side, clock
        self._tally, self._retries = tally, retries

    def send(self, state: KeyState, request: Outgoing, went: FirstAttempt | None = None) -> Steps[Any]:
        """Send a request until it is answered, and return the transport's response; `went`: its first attempt was."""
        tries = Tries(self._retries, state, request, self._clock, went and went.began_us)
        try:
            if went is None:
                tries.begin()
                response = yield from self._attempt(state, request, tries)
            else:
                response = yield from self._heard_of(state, request, tries, went)
            while tries.wait is not None:
                self._tally.add("retried")
                self._tally.tell("retry", state.key, tries.wait)
                if tries.wait:
                    yield self._side.sleep(tries.wait)
                tries.begin()
                response = yield from self._attempt(state, request, tries)
            return response
        except BudgetExhausted as error:
            self._note(state, error)
            raise
        finally:
            tries.end()

    def turn(self, state: KeyState, costs: Mapping[str, int]) -> Steps[None]:
        """Wait for the turn of a call that is no request."""
        try:
            yield from self._turns.take(state, lambda: costs)
        except BudgetExhausted as error:
            self._note(state, error)
            raise
        self._tally.sent()

    def _note(self, state: KeyState, error: BudgetExhausted) -> None:
        """Count a call that is refused here."""
        self._tally.add("refused_here")
        self._tally.tell("refuse", state.key, error.retry_after, error.reason)

    def _attempt(self, state: KeyState, request: Outgoing, tries: Tries) -> Steps[Any]:
        """Send the request once; until the server has answered once, this is the only request under way."""
        if state.answered or not (yield from self._turns.is_first(state)):
            return (yield from self._send(state, request, tries))
        try:
            return (yield from self._send(state, request, tries, alone=True))
        finally:
            state.line.leave()

    def _send(self, state: KeyState, request: Outgoing, tries: Tries, alone: bool = False) -> Steps[Any]:
        """Send the request in its turn; return its response if that is one for the caller."""
        usage = request.usage
        turn = yield from self._turns.take(state, one if usage is None else lambda: usage.units, alone)
        settlement = None if usage is None else Settlement(turn, usage, state, self._tally, self._side)
        tries.send()
        self._tally.sent()
        if request_class.get() is not None:
            request.added = outgoing_headers()
        try:
            response = yield request.send()
        except Exception as error:  # a request that was cancelled may have been sent, and stays charged
            if not tries.failed(request.failure(error)):
                raise
            return None
        if not request.answered:
            return response
        return (yield from self._conclude(state, request, tries, response, settlement))

    def _heard_of(self, state: KeyState, request: Outgoing, tries: Tries, went: FirstAttempt) -> Steps[Any]:
        """Return the response to an attempt that was sent at once, if that is one for the caller."""
        if went.error is None:
            return (yield from self._conclude(state, request, tries, went.response, None))
        if not tries.failed(request.failure(went.error)):
            raise went.error
        return None

    def _conclude(
        self,
        state: KeyState,
        request: Outgoing,
        tries: Tries,
        response: Any,  # noqa: ANN401
        settlement: Settlement | None,
    ) -> Steps[Any]:
        """Return a response that is one for the caller; close another one."""
        answer = yield from self._hear(state, request, response)
        if not tries.answered(answer):
            return response if settlement is None else (yield from settlement.watch(request, response, answer))
        yield request.close(response)
        if settlement is not None:
            yield from settlement.failed(answer)
        return None

    def _hear(self, state: KeyState, request: Outgoing, response: Any) -> Steps[ServerResponse]:  # noqa: ANN401
        """Learn from a response: limits, pauses, and the rate where nothing is told."""
        status, headers = request.head(response)
        body = b""
        if status in (403, 429) and REQUEST_ID_OF_GITHUB in headers:
            body = yield request.content(response)
        now_us = self._clock.now_us()
        answer = read(status, headers, now_us, body)
        state.answered = True
        pause = self._learn(state, answer, now_us) if answer.told else 0.0
        if not answer.refused:
            state.finder.passed(now_us)
        else:
            state.refused(now_us)
            self._tally.add("refused_there")
            self._tally.tell("refused", state.key, answer.retry_after or 0.0)
            pause = max(pause, answer.retry_after or 0.0)
        if pause > state.pause_left(now_us):
            yield from self._pause(state, pause, now_us)
        return answer

    def _learn(self, state: KeyState, answer: ServerResponse, now_us: int) -> float:
        """Learn limits; return for how many seconds nothing is left."""
        known = state.learned.limits
        pause = state.learned.hear(answer.told, now_us)
        if state.learned.limits != known:
            self._tally.tell("learn", state.key, reason="; ".join(map(str, state.learned.limits)))
        return pause

    def _pause(self, state: KeyState, seconds: float, now_us: int) -> Steps[None]:
        """Pause a key, here and in every process of the store."""
        seconds = min(seconds, LONGEST_PAUSE)
        state.pause(now_us, seconds)
        self._tally.add("paused")
        self._tally.tell("pause", state.key, seconds)
        yield self._side.pause(state.learned.paces, state.key, seconds)
