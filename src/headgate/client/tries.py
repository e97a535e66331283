"""The tries of one request: whether an outcome is followed by another attempt, and whether the key is throttled."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from headgate.client.deadlines import time_left
from headgate.client.key_state import KeyState
from headgate.client.outgoing import Outgoing
from headgate.client.retrying import Attempted, Failure, GiveUp, Retries, decide
from headgate.client.server_limits import ServerResponse
from headgate.clock import SECOND, Clock
from headgate.errors import BudgetExhausted
from headgate.wording import log_of

log = log_of("headgate.client")
THROTTLED: Final = 1.0
"""The seconds after which a call that was refused here may come back; its chance is drawn anew each time."""


class Tries:
    """The tries of one request."""

    __slots__ = ("_attempts", "_began_us", "_clock", "_request", "_retries", "_spending", "_state", "wait")

    def __init__(
        self, retries: Retries, state: KeyState, request: Outgoing, clock: Clock, began_us: int | None = None
    ) -> None:
        self._retries, self._state, self._request, self._clock = retries, state, request, clock
        self._spending = False
        self.wait: float | None = None
        """The seconds until the next attempt; None if the last outcome is for the caller."""
        if began_us is None:
            self._attempts, self._began_us = 0, clock.now_us()
            state.retry_budget.count_request(self._began_us)
        else:  # the first attempt was sent, and counted
            self._attempts, self._began_us = 1, began_us

    def begin(self) -> None:
        """Begin an attempt; refuse it here if the server fails most requests of this key."""
        self._attempts += 1
        throttle, now_us = self._state.throttle, self._clock.now_us()
        if now_us < throttle.failing_until_us and throttle.refuses(now_us):
            raise BudgetExhausted(self._state.key, "the server fails most requests", THROTTLED)

    def send(self) -> None:
        """Note that the attempt is sent now."""
        now_us = self._clock.now_us()
        self._state.finder.sent(now_us)
        if self._spending:
            self._spending = False
            self._state.retry_budget.send(now_us)

    def end(self) -> None:
        """Forget a retry that was not sent."""
        if self._spending:
            self._spending = False
            self._state.retry_budget.cancel()

    def failed(self, failure: Failure | None) -> bool:
        """Return whether another attempt follows a failed connection."""
        self.wait = None
        if failure is not None:
            self._state.throttle.count(self._clock.now_us(), accepted=False)
            self._state.stir()
            self.wait = self._until_next(failure)
        return self.wait is not None

    def answered(self, answer: ServerResponse) -> bool:
        """Return whether another attempt follows an answer."""
        # A refusal by a limit is no failure: pauses answer it.
        self._state.throttle.count(self._clock.now_us(), accepted=answer.refused or answer.status < 500)
        self._state.stir()
        self.wait = None if answer.status < 400 else self._until_next(answer)
        return self.wait is not None

    def _until_next(self, outcome: ServerResponse | Failure) -> float | None:
        request, now_us = self._request, self._clock.now_us()
        elapsed = (now_us - self._began_us) / SECOND
        sent = Attempted(request.method, request.headers, self._attempts, elapsed, request.repeatable)
        verdict = decide(sent, outcome, self._retries)
        if isinstance(verdict, GiveUp):
            if verdict.reason == "sdk":
                _warn_of_sdk(request.host)
            return None
        left = time_left()
        if left is not None and verdict.wait > left:
            return None
        if not (isinstance(outcome, ServerResponse) and outcome.refused):
            if not self._state.retry_budget.begin(now_us):
                return None
            self._spending = True
        return verdict.wait


@lru_cache(maxsize=256)
def _warn_of_sdk(host: str) -> None:
    """Log once for each host."""
    log.warning(
        "the SDK that calls %s retries by itself, so no request is retried here: make the SDK with max_retries=0",
        host,
    )
