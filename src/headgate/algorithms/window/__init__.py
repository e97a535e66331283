"""The window step: choose the tick with which the products of counts and times stay exact."""

from __future__ import annotations

from typing import Final

from headgate.algorithms.contract import EXACT, Verdict
from headgate.algorithms.window.reference import Params, answer, charge, fresh, give
from headgate.clock import DAY, WEEK
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

KIND: Final = "window"
LENDS: Final = False
SIZED: Final = False
MOST_SLOTS: Final = 10_000
FIRST_MONDAY: Final = 4 * DAY
"""1970-01-05: windows of whole weeks begin on a Monday."""


def fit(amount: int, period_us: int, burst: int, slots: int) -> Params:
    """Find the smallest power-of-ten tick that divides the period and that keeps every product below 2**53."""
    if burst != amount:
        raise InvalidLimit(f"burst {burst}: a window lets its whole amount pass at once, so its burst is {amount}")
    if slots > MOST_SLOTS:
        raise InvalidLimit(f"{slots} slots: a sliding window has at most {MOST_SLOTS}")
    tick = 1
    while max(amount, slots) * (period_us // tick) >= EXACT and period_us % (tick * 10) == 0:
        tick *= 10
    period = period_us // tick
    if max(amount, slots) * period >= EXACT:
        raise InvalidLimit(f"{amount} per {period_us} us does not fit a window; the largest is {(EXACT - 1) // period}")
    if slots > period:
        raise InvalidLimit(f"{slots} slots do not fit {period_us} us; the most is {period}")
    # The offset includes one period, so that no instant since the epoch is before the origin.
    offset = period_us - FIRST_MONDAY if period_us % WEEK == 0 else 0
    return Params(amount, period, slots, tick, offset, (EXACT - 1) // period)


def words(params: Params) -> int:
    """Return the words for the slot number and one count; a sliding window adds a count per slot, and their sum."""
    return 2 + params.slots + (params.slots > 1)


def kernel(params: Params) -> str:
    """Return `fixed` for a fixed window, which needs no blending, and else `kernel`."""
    return "kernel" if params.slots else "fixed"


def at_grant(mark: tuple[int, int], granted_us: int) -> tuple[int, int]:
    """Return the mark itself: it is the slot that was charged."""
    return mark


def lend(params: Params, now: int, cost: int, refusal: Verdict) -> Verdict:
    """Return the refusal: a window cannot charge for later."""
    return refusal
