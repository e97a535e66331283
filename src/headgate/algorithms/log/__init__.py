"""The log step: a ring of at most `limit` stamps."""

from __future__ import annotations

from typing import Final

from headgate.algorithms.contract import Verdict
from headgate.algorithms.log.reference import Params, answer, charge, fresh, give
from headgate.errors import InvalidLimit

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

KIND: Final = "log"
LENDS: Final = False
SIZED: Final = True
MOST: Final = 1_000_000


def fit(amount: int, period_us: int, burst: int, slots: int) -> Params:
    """Check the limit. A log takes 8 bytes for each unit of its limit, so the amount has a maximum."""
    if burst != amount:
        raise InvalidLimit(f"burst {burst}: a log lets its whole amount pass at once, so its burst is {amount}")
    if amount > MOST:
        raise InvalidLimit(f"{amount} is too many stamps for a log; at most {MOST}, or use sliding-window/60")
    return Params(amount, period_us)


def words(params: Params) -> int:
    """Return the words for the number of stamps, the index of the oldest, and the ring."""
    return 2 + params.limit


def kernel(params: Params) -> str:
    """Return the name of the only kernel."""
    return "kernel"


def at_grant(mark: tuple[int, int], granted_us: int) -> tuple[int, int]:
    """Return the mark itself: its instant identifies the stamps."""
    return mark


def lend(params: Params, now: int, cost: int, refusal: Verdict) -> Verdict:
    """Return the refusal: a log cannot charge for later."""
    return refusal
