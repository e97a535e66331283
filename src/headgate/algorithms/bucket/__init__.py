"""The bucket step: compile a rate and a burst to exact integers."""

from __future__ import annotations

from math import gcd
from typing import Final

from headgate.algorithms.bucket.reference import (
    FINEST,
    Params,
    answer,
    charge,
    departs,
    fresh,
    give,
    lend,
    starting_within,
    usable_at,
)
from headgate.algorithms.contract import EXACT
from headgate.clock import HOUR
from headgate.errors import InvalidLimit

__all__ = [
    "KIND",
    "LENDS",
    "SIZED",
    "Params",
    "answer",
    "at_grant",
    "charge",
    "departs",
    "fit",
    "fresh",
    "give",
    "is_exact",
    "kernel",
    "lend",
    "starting_within",
    "usable_at",
    "words",
]

KIND: Final = "bucket"
LENDS: Final = True
SIZED: Final = False
LONGEST: Final = 2**48
"""A full burst must drain within this many microseconds (8.9 years)."""


def is_exact(amount: int, period_us: int) -> bool:
    """Return whether the rate is an exact fraction; otherwise its interval is rounded up by at most 1/8192 us."""
    return amount // gcd(amount, period_us) <= FINEST


def fit(amount: int, period_us: int, burst: int, slots: int) -> Params:
    """Reduce the rate, round a fraction that is too fine, and check that a whole burst fits."""
    divisor = gcd(amount, period_us)
    a, p = amount // divisor, period_us // divisor
    if a > FINEST and p < a:
        # A unit takes less than a microsecond: rounding to 1/8192 us would exceed the promised error of 0.012 %.
        near = _exact_below(amount, period_us)
        raise InvalidLimit(f"{amount} per {period_us} us is too fine a fraction to keep exactly; the nearest is {near}")
    if a > FINEST:
        a, p = FINEST, -(-p * FINEST // a)
    most = min((EXACT - 1) // a, (LONGEST * a - 1) // p)
    if most == 0:
        raise InvalidLimit(f"{amount} per {period_us} us is too slow: one unit must drain within {LONGEST} us")
    if burst > most:
        raise InvalidLimit(f"burst {burst} does not fit a rate of {amount} per {period_us} us; the largest is {most}")
    return Params(burst, a, p, *divmod(p, a), *divmod(burst * p, a), max(period_us, HOUR))


def _exact_below(amount: int, period_us: int) -> int:
    """Return the largest exact amount up to this one, by the divisors of the period from small primes."""
    divisors = {1}
    for prime in (2, 3, 5, 7):
        for divisor in sorted(divisors):
            while period_us % (divisor * prime) == 0:
                divisor *= prime
                divisors.add(divisor)
    return max(min(amount // divisor, FINEST) * divisor for divisor in divisors)


def words(params: Params) -> int:
    """Return 1: microseconds and fraction share one word."""
    return 1


def kernel(params: Params) -> str:
    """Return the name of the only kernel."""
    return "kernel"


def at_grant(mark: tuple[int, int], granted_us: int) -> tuple[int, int]:
    """Return the time of the grant: from there, overlapping refunds cannot give back more than was charged."""
    return (granted_us, 0)
