"""The window step: which tick a limit and a period need so that counts times time stays exact."""

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
    """Find the smallest power-of-ten tick that divides the period and keeps every product below 2**53."""
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
    # One period is added so that no instant since the epoch lies before the origin.
    offset = period_us - FIRST_MONDAY if period_us % WEEK == 0 else 0
    return Params(amount, period, slots, tick, offset, (EXACT - 1) // period)


def words(params: Params) -> int:
    """The slot number and one count; blended, one more count per slot and, from two slots on, their running sum."""
    return 2 + params.slots + (params.slots > 1)


def kernel(params: Params) -> str:
    """A window that is not divided needs no blending."""
    return "kernel" if params.slots else "fixed"


def at_grant(mark: tuple[int, int], granted_us: int) -> tuple[int, int]:
    """A count is taken from the slot it was put in, whenever that is."""
    return mark


def lend(params: Params, now: int, cost: int, refusal: Verdict) -> Verdict:
    """A count is of what has been: there is no later to charge."""
    return refusal
