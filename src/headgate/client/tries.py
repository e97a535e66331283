"""The tries of one request: whether an outcome is followed by another attempt, and whether the key is throttled."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from headgate.client.key_state import KeyState
from headgate.client.outgoing import Outgoing
from headgate.client.retrying import Failure, GiveUp, Retries, Sent, decide
from headgate.client.throttle import Throttle
from headgate.client.told import Answer
from headgate.clock import SECOND, Clock
from headgate.errors import BudgetExhausted
from headgate.wording import log_of

log = log_of("headgate.client")
THROTTLED: Final = 1.0
"""The seconds after which a call that was refused here may come back; its chance is drawn anew each time."""


class Tries:
    """The tries of one request."""

    __slots__ = ("_attempts", "_began_us", "_clock", "_key", "_request", "_retries", "_retry_budget", "_spending",
                 "_throttle")  # fmt: skip

    def __init__(self, retries: Retries, throttle: Throttle, state: KeyState, request: Outgoing, clock: Clock) -> None:
        self._retries, self._throttle, self._request, self._clock = retries, throttle, request, clock
        self._key, self._retry_budget = state.key, state.retry_budget
        self._attempts = 0
        self._began_us = clock.now_us()
        self._spending = False
        self._retry_budget.count_request(self._began_us)

    def begin(self) -> None:
        """Begin an attempt; refuse it here if the server fails most requests of this key."""
        self._attempts += 1
        if self._throttle.refuses(self._key, self._clock.now_us()):
            raise BudgetExhausted(self._key, "the server fails most requests", THROTTLED)

    def send(self) -> None:
        """Note that the attempt is sent now."""
        if self._spending:
            self._spending = False
            self._retry_budget.send(self._clock.now_us())

    def end(self) -> None:
        """Forget a retry that was not sent."""
        if self._spending:
            self._spending = False
            self._retry_budget.cancel()

    def failed(self, failure: Failure | None) -> float | None:
        """Return the seconds until the next attempt after a failed connection; None if there is none."""
        return None if failure is None else self._next(failure)

    def answered(self, answer: Answer) -> float | None:
        """Return the seconds until the next attempt after an answer; None if the answer is for the caller."""
        if answer.refused or answer.status < 500:  # a refusal by a limit is no failure: pauses answer it
            self._throttle.accept(self._key, self._clock.now_us())
        return None if answer.status < 400 else self._next(answer)

    def _next(self, outcome: Answer | Failure) -> float | None:
        request, now_us = self._request, self._clock.now_us()
        elapsed = (now_us - self._began_us) / SECOND
        sent = Sent(request.method, request.headers, self._attempts, elapsed, request.repeatable)
        verdict = decide(sent, outcome, self._retries)
        if isinstance(verdict, GiveUp):
            if verdict.reason == "sdk":
                _warn_of_sdk(request.host)
            return None
        if not (isinstance(outcome, Answer) and outcome.refused):
            if not self._retry_budget.begin(now_us):
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
