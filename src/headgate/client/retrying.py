"""Whether and when a failed request is sent again: pure rules. The retry budget and the deadline are asked elsewhere.

| failure                                  | sent again                             | wait, if a time is told |
|------------------------------------------|----------------------------------------|-------------------------|
| 429, GitHub's 403 without quota          | any method: it was not processed       | the told time           |
| 503 with a told time                     | any method: it was not processed       | told, up to half more   |
| connection refused                       | any method: it was not sent            |                         |
| 408, 502, 503, 504, 529, connection lost | idempotent methods, `Idempotency-Key`  | told, up to half more   |
| any error with `x-should-retry: true`    | any method: the server asks for it     | told, up to half more   |

Without a told time, and for a told time of 0, the wait is exponential with full jitter. A crowd that obeys a told time
to the letter would come back as one: chance adds up to half of it, cut at the caps. After a 429 the limits of
the client spread the crowd. A wait that would break a cap is not begun: the caller gets the answer at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import random as draw
from typing import Final, Literal, NamedTuple

from headgate.client.arguments import checked_count, checked_seconds
from headgate.client.full_jitter import backoff
from headgate.client.server_limits import ServerResponse

Failure = Literal["refused", "lost"]
"""A request without an answer: the connection was refused, so nothing was sent; or it was lost on the way."""
Reason = Literal["final", "forbidden", "sdk", "body", "method", "attempts", "longest_wait", "in_all"]
"""Why a request is not sent again: the answer is final; the server forbids it; the SDK above retries already; the body
cannot be sent twice; the method may have had an effect; one of the caps."""

_IDEMPOTENT: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"})
_TRANSIENT: Final = frozenset({408, 502, 503, 504, 529})
_SPREAD: Final = 0.5
"""The part of a told time that chance adds to it."""


@dataclass(frozen=True, slots=True)
class Retries:
    """The bounds of a request's attempts; times are in seconds."""

    attempts: int = 4
    """The most attempts, the first included; 1 is no retry."""
    longest_wait: float = 60
    in_all: float = 120
    """The most time from the first attempt to the beginning of the last."""
    base: float = 0.5
    ceiling: float = 30

    def __post_init__(self) -> None:
        checked_count("attempts", self.attempts, 1)
        for name in ("longest_wait", "in_all", "ceiling"):
            checked_seconds(name, getattr(self, name))
        checked_seconds("base", self.base, above_zero=True)


class Retry(NamedTuple):
    """The request is sent again after these seconds."""

    wait: float


class GiveUp(NamedTuple):
    """The request is not sent again."""

    reason: Reason


@dataclass(frozen=True, slots=True)
class Attempted:
    """A request, and its attempts so far."""

    method: str
    headers: Mapping[str, str] = field(default_factory=dict)
    """Header fields of the request, in any case."""
    attempts: int = 1
    """The number of attempts so far."""
    elapsed: float = 0.0
    """Seconds since the first attempt began."""
    repeatable: bool = True
    """False if the body can be sent only once, as one from an iterator."""

    def header(self, name: str) -> str:
        """Return a header field of the request; empty if it has none. The name is in lower case."""
        return next((value for given, value in self.headers.items() if given.lower() == name), "")


def decide(
    sent: Attempted, outcome: ServerResponse | Failure, retries: Retries, random: Callable[[], float] = draw
) -> Retry | GiveUp:
    """Return whether the request is sent again, and when."""
    reason = _obstacle(sent, outcome)
    if reason is not None:
        return GiveUp(reason)
    if sent.attempts >= retries.attempts:
        return GiveUp("attempts")
    left = retries.in_all - sent.elapsed
    told = outcome.retry_after if isinstance(outcome, ServerResponse) else None
    if told is None or told <= 0:
        ceiling = min(retries.ceiling, retries.longest_wait)
        wait = backoff(sent.attempts - 1, retries.base, ceiling, random=random)
    elif told > retries.longest_wait:
        return GiveUp("longest_wait")
    elif isinstance(outcome, ServerResponse) and outcome.refused:
        wait = told
    else:
        # Cut at the caps, not drawn below them: a crowd that failed one after another keeps that spread.
        wait = max(told, min(told + random() * told * _SPREAD, retries.longest_wait, left))
    return Retry(wait) if wait <= left else GiveUp("in_all")


def retried_above(sent: Attempted) -> bool:
    """Whether an SDK sends this request again by itself: `x-stainless-retry-count` is above 0."""
    count = sent.header("x-stainless-retry-count").strip()
    return count.isdigit() and count.strip("0") != ""


def _obstacle(sent: Attempted, outcome: ServerResponse | Failure) -> Reason | None:
    """Return what stands against a retry at any time."""
    wish = outcome.should_retry if isinstance(outcome, ServerResponse) else None
    processed = _processed(outcome)
    if processed is None and not (wish and isinstance(outcome, ServerResponse) and outcome.status >= 400):
        return "final"
    if wish is False:
        return "forbidden"
    if retried_above(sent):
        return "sdk"
    if not sent.repeatable:
        return "body"
    if processed and not wish and sent.method.upper() not in _IDEMPOTENT and not sent.header("idempotency-key"):
        return "method"
    return None


def _processed(outcome: ServerResponse | Failure) -> bool | None:
    """Return whether the server may have processed the request; None if the outcome is final."""
    if not isinstance(outcome, ServerResponse):
        return outcome == "lost"
    if outcome.refused or (outcome.status == 503 and outcome.retry_after is not None):
        return False
    return True if outcome.status in _TRANSIENT else None
