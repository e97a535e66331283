"""The decision: from needs to an algorithm, a limit, and the reasons."""

from __future__ import annotations

from typing import Final, NamedTuple

from headgate.clock import DAY, SECOND
from headgate.lab.advise.advice import Advice, megabytes
from headgate.lab.advise.needs import Needs
from headgate.lab.advise.sizes import SLOTS, Size, size_of, sizes
from headgate.limit import COARSE

LONGEST_WAIT: Final = 10 * SECOND
"""A queue drains within this time: callers rarely wait for longer."""
SLOTTED: Final = f"sliding-window/{SLOTS}"
POLLING: Final = (
    "a client that polls at exactly its limit, a little early or late each time, is refused now and then: of 14,400 "
    "polls in a day at 10/minute about 360 by a fixed window, 500 by two counters and 1,200 by a log, none by a bucket"
)


class Choice(NamedTuple):
    """An algorithm with its limit, and the reasons for it."""

    algorithm: str
    limit: str
    reasons: tuple[str, ...]
    sees: int = 0
    """The most that any period may see of a bucket; 0 for other algorithms, which do not depend on the choice."""


def recommend(needs: Needs) -> Advice:
    """Return the limit that serves these needs, with reasons, warnings and bytes."""
    measured = sizes(needs)
    choice = _choose(needs, measured)
    if choice.sees:
        measured[choice.algorithm] = size_of(choice.algorithm, needs)._replace(sees=f"{choice.sees:,}")
    return Advice(
        needs=needs,
        algorithm=choice.algorithm,
        limit=choice.limit,
        waits=needs.smooth,
        reasons=choice.reasons,
        warnings=_warnings(needs, choice, measured),
        sizes=tuple(measured.values()),
    )


def _choose(needs: Needs, measured: dict[str, Size]) -> Choice:
    if needs.smooth:
        return _queue(needs)
    if needs.exactness == "exact":
        return _exact(needs, measured)
    if not needs.bursts:
        return _even(needs)
    if needs.exactness == "close":
        return _close(needs, measured)
    return _quota(needs) if needs.period_us >= DAY else _bucket(needs, measured)


def _queue(needs: Needs) -> Choice:
    room = max(1, needs.amount * min(needs.period_us, LONGEST_WAIT) // needs.period_us)
    wait = room * needs.period_us / needs.amount / SECOND
    return Choice(
        "leaky-bucket",
        f"{needs.rate} queue {room}",
        (
            "requests leave at even intervals, however they come: a leaky bucket as a queue, by a Shaper or a rule "
            "with `act: delay`",
            f"at most {room:,} wait, for {wait:.3g} s at most; more are refused at once",
        ),
        needs.amount,
    )


def _exact(needs: Needs, measured: dict[str, Size]) -> Choice:
    log, slotted = measured["sliding-log"], measured[SLOTTED]
    if not needs.bursts:
        return _split(needs, "no bursts: a window or a log would let the whole amount pass at once")
    if log.fits(needs):
        reasons = (
            f"no {needs.period} ever sees more than {needs.amount:,}, wherever it begins: only a log of every request "
            "promises that and refuses no request wrongly",
            f"its states fit: {_worked_out(log)}, of {megabytes(needs.memory)}",
        )
        return Choice("sliding-log", f"{needs.rate} by sliding-log", reasons)
    too_large = f"a log does not fit: {_worked_out(log)}, of {megabytes(needs.memory)}"
    if slotted.fits(needs):
        reasons = (
            too_large,
            f"{SLOTS} slots see at most {needs.amount:,} in any {SLOTS - 1}/{SLOTS} of a {needs.period}, and the one "
            f"that leaves is blended: {_worked_out(slotted)}",
        )
        return Choice(SLOTTED, f"{needs.rate} by {SLOTTED}", reasons)
    return _split(needs, too_large)


def _split(needs: Needs, why: str) -> Choice:
    """Return a bucket whose rate and burst add up to the amount."""
    burst = max(1, needs.amount // 10)
    rate = max(1, needs.amount - burst)
    reasons = (
        why,
        f"any {needs.period} sees less than the rate and the burst of a bucket together: less than {rate + burst:,}. A "
        f"client that sends evenly has {rate:,} of it, one that sends at once {burst:,}",
    )
    return Choice("token-bucket", f"{rate}/{needs.period} burst {burst}", reasons, rate + burst - 1)


def _even(needs: Needs) -> Choice:
    burst = max(1, needs.amount // 10)
    reasons = (
        f"no bursts: at most {burst:,} pass at once, a tenth of the amount, and the rest at the rate. Fewer at once "
        "would refuse clients for the jitter of their network",
    )
    return Choice("token-bucket", f"{needs.rate} burst {burst}", reasons, needs.amount + burst - 1)


def _close(needs: Needs, measured: dict[str, Size]) -> Choice:
    log, counters = measured["sliding-log"], measured["sliding-window"]
    if needs.amount >= COARSE:
        reasons = (
            f"about {needs.amount:,} in any {needs.period}: two counters, and the older one counts as if its requests "
            "had come evenly",
            f"two counters take {_worked_out(counters)}; a log takes {_worked_out(log)}",
        )
        return Choice("sliding-window", f"{needs.rate} by sliding-window", reasons)
    reasons = (
        f"the estimate of two counters is too coarse below an amount of about {COARSE}",
        f"a log of {needs.amount} is exact and small: {_worked_out(log)}",
    )
    return Choice("sliding-log", f"{needs.rate} by sliding-log", reasons)


def _quota(needs: Needs) -> Choice:
    reasons = (
        f"a quota that people read: {needs.rate} begins anew at midnight UTC, with all of it there again at once",
        "a burst across the seam does no harm in so long a period",
    )
    return Choice("fixed-window", f"{needs.rate} by fixed-window", reasons)


def _bucket(needs: Needs, measured: dict[str, Size]) -> Choice:
    bucket, window = measured["token-bucket"], measured["fixed-window"]
    reasons = (
        f"bursts are welcome, and {needs.rate} holds in the long run: the bucket refills evenly, so nobody waits for "
        "the end of a window",
        f"its states are small: {_worked_out(bucket)}. A fixed window saves nothing worth its seam, with "
        f"{window.key_bytes} bytes a key",
    )
    return Choice("token-bucket", needs.rate, reasons, 2 * needs.amount - 1)


def _warnings(needs: Needs, choice: Choice, measured: dict[str, Size]) -> tuple[str, ...]:
    found = []
    if not choice.sees:
        found.append(POLLING)
    if choice.sees > needs.amount:
        found.append(
            f"the worst {needs.period} sees the burst and the refill: {choice.sees:,}. Where that is too much, lower "
            "the burst"
        )
    if choice.algorithm == "fixed-window":
        found.append(f"{2 * needs.amount:,} can pass around the end of a window, half before it and half after")
    size = measured[choice.algorithm]
    if not size.fits(needs):
        found.append(
            f"the states do not fit: {_worked_out(size)}, of {megabytes(needs.memory)}. A full store forgets keys "
            "before their time"
        )
    return tuple(found)


def _worked_out(size: Size) -> str:
    if not size.key_bytes:
        return "more than a store can keep for one key"
    return f"{size.key_bytes:,} bytes a key, {megabytes(size.total)} in all"
