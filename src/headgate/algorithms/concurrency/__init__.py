"""The concurrency step: an amount at once, with a record of each permit."""

from __future__ import annotations

from typing import Final

from headgate.algorithms.concurrency.reference import MOST, Params, answer, charge, fresh, give
from headgate.algorithms.contract import Verdict
from headgate.errors import InvalidLimit
from headgate.layout import PERMIT_WORDS, PERMITS_AT

__all__ = [
    "KIND",
    "LENDS",
    "SIZED",
    "Params",
    "answer",
    "at_grant",
    "charge",
    "fit",
    "fresh",
    "give",
    "kernel",
    "lend",
    "words",
]

KIND: Final = "concurrency"
LENDS: Final = False
SIZED: Final = True
SHORTEST: Final = 100_000
"""The shortest lease in microseconds: a lease is renewed four times in its lifetime."""


def fit(amount: int, period_us: int, burst: int, slots: int) -> Params:
    """Check the limit. A permit takes 24 bytes in a table, so permits have a maximum; the period is the lease."""
    if burst != amount:
        raise InvalidLimit(f"burst {burst}: all permits may be taken at once, so the burst is {amount}")
    if amount > MOST:
        raise InvalidLimit(f"{amount} are too many permits for one key; at most {MOST}")
    if period_us < SHORTEST:
        raise InvalidLimit(f"ttl: a lease is renewed in the background and lasts at least {SHORTEST // 1000} ms")
    return Params(amount, period_us)


def words(params: Params) -> int:
    """Return the words for the number of permits, the number of units, and three words for each permit."""
    return PERMITS_AT + PERMIT_WORDS * params.limit


def kernel(params: Params) -> str:
    """Return the name of the only kernel."""
    return "kernel"


def at_grant(mark: tuple[int, int], granted_us: int) -> tuple[int, int]:
    """Return the mark itself: it identifies the permit."""
    return mark


def lend(params: Params, now: int, cost: int, refusal: Verdict) -> Verdict:
    """Return the refusal: the time of a release cannot be promised."""
    return refusal
