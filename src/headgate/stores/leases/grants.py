"""The records of a lease ledger: tokens as the server charged them, as a key holds them, and as they go back."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.engine import Decision
from headgate.engine.lease_cache import Lease
from headgate.limit import Limit

if TYPE_CHECKING:
    from headgate.stores.leases.pace import Pause

NEVER_ASKED: Final = -(2**62)
"""The turn of a key about which the server has not been asked."""


class Grant(NamedTuple):
    """Tokens as the server charged them."""

    key: str
    units: int
    marks: tuple[tuple[int, int], ...]
    """The mark of the charge under each limit, as of the instant of the grant."""
    sent_us: int
    until_us: int
    left: tuple[int, ...]
    """The units that the server had left besides these tokens, under each limit."""
    resets: tuple[int, ...]
    """The instants at which the server's states are full again."""


def granted_tokens(
    limits: tuple[Limit, ...], key: str, decision: Decision, granted_us: int, between_us: tuple[int, int]
) -> Grant:
    """Return the tokens of a decision, which may be spent between these local instants."""
    verdicts, (sent_us, until_us) = decision.verdicts, between_us
    marks = tuple(
        limit.step.at_grant(verdict.mark, granted_us) for limit, verdict in zip(limits, verdicts, strict=True)
    )
    left = tuple(verdict.remaining for verdict in verdicts)
    resets = tuple(sent_us + verdict.reset_us for verdict in verdicts)
    return Grant(key, decision.granted, marks, sent_us, until_us, left, resets)


def counts_still(limits: tuple[Limit, ...], grant: Grant, units: int, now: int) -> bool:
    """Return whether units of a grant still count: a bucket has not regained them, or their window has not ended."""
    elapsed = now - grant.sent_us
    return any(
        units * limit.period_us > elapsed * limit.amount if limit.step.LENDS else now < resets_us
        for limit, resets_us in zip(limits, grant.resets, strict=True)
    )


class Unused(NamedTuple):
    """Tokens to give back."""

    key: str
    units: int
    marks: tuple[tuple[int, int], ...]


class Unspent(list[Unused]):
    """Tokens to give back, in the order in which they are sent."""

    since_us = 0
    """The instant since which there are some, or of the last failure to send them."""

    def add(self, unused: Unused, now: int) -> None:
        """Add tokens to give back."""
        if not self:
            self.since_us = now
        self.append(unused)

    def take(self, most: int | None) -> list[Unused]:
        """Take out at most this number of entries; all with None."""
        given = self[:most]
        del self[:most]
        return given

    def put_back(self, unused: list[Unused], now: int) -> None:
        """Put back entries that could not be sent."""
        self[:0] = unused
        self.since_us = now


class Reply(threading.Event):
    """The answer of the server to a question under way, for callers that wait for it."""

    error: BaseException | None = None
    """The failure that came in its place."""


class Held:
    """The leases of one key, and its recent demand."""

    __slots__ = (
        "answer", "asked", "asking", "counted", "crowded", "current", "early_us", "ends_us", "following", "lease",
        "least", "left", "missed", "offer", "own", "pause", "rate", "returned", "scarce", "seen_us", "short", "size",
        "turn_us", "wait", "waiting", "wanted",
    )  # fmt: skip

    def __init__(self, lease: Lease, now: int) -> None:
        self.lease = lease
        self.current: Grant | None = None
        self.following: Grant | None = None
        """The lease charged ahead, which is used once the current one is spent or has expired."""
        self.returned, self.early_us, self.scarce = 0, 0, False
        """The tokens of the current lease that were given back early, the instant to look for more, and the reason."""
        self.asking: int | None = None
        """The instant at which tokens were asked for that have not arrived yet."""
        self.answer: Reply | None = None
        self.waiting = 0
        """If callers wait: the answer, and the units of these callers that have not been paid from it."""
        self.wanted = 0
        """The most tokens that were asked for then."""
        self.own = 0
        """The units of the caller that asked, if it asked for no tokens."""
        self.size = 1
        """The number of tokens in the last grant, or the cost of a call if that was more."""
        self.rate = 0.0
        """Units per microsecond that callers in this process asked for lately."""
        self.left: int | None = None
        """The units that the server had left when it was last asked."""
        self.ends_us = 0
        """About the instant at which the window ends that was open then."""
        self.asked, self.seen_us, self.counted = 0, now, 0
        """The units asked for lately, until this instant, and the tokens of the current lease among them."""
        self.short = False
        """Whether the server had less than was wanted when it was last asked."""
        self.pause: Pause | None = None
        """The refusal of callers until the next question, if the key is short."""
        self.missed = 0
        """The units that were refused since then without a question."""
        self.crowded = False
        """Whether so many processes ask about the key that the turn is farther away than it need be."""
        self.offer = 0
        """The tokens that the server was asked to add if many processes ask about the key."""
        self.least, self.wait = 0, 0
        """The shortest time, in microseconds, that the server was asked to leave until a question; the time it left."""
        self.turn_us = NEVER_ASKED
        """The local instant of the turn: that of the next question, if the key is short."""

    def wait_for(self, units: int) -> Reply | None:
        """Return the answer for which a caller of these units waits; None if there is no question under way."""
        if self.asking is None:
            return None
        self.waiting += units
        if self.answer is None:
            self.answer = Reply()
        return self.answer

    def answered(self, error: BaseException | None = None) -> None:
        """Note that the question under way has ended, and wake the callers that wait for it."""
        self.asking = None
        if self.answer is not None:
            self.answer.error = error
            self.answer.set()
            self.answer = None

    def start_again(self) -> None:
        """Forget what the server said: it did not answer, and may be another one when it does."""
        self.left, self.size, self.asked = None, 1, 0
        self.short, self.pause, self.turn_us = False, None, NEVER_ASKED

    def grants(self) -> tuple[Grant, ...]:
        """Return the leases, in the order in which they will be spent."""
        return tuple(grant for grant in (self.current, self.following) if grant is not None)


def tokens_of(held: Held | None, grant: Grant, now: int) -> int:
    """Return the number of tokens of a lease that may still be spent."""
    if held is None or now >= grant.until_us:
        return 0
    if grant is held.current:
        return held.lease.tokens
    return grant.units if grant is held.following else 0
