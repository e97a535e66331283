"""The bucket step: how a rate and a burst become exact integers."""

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
    """Whether the rate is kept as the exact fraction; otherwise its interval is rounded up by at most 1/8192 us."""
    return amount // gcd(amount, period_us) <= FINEST


def fit(amount: int, period_us: int, burst: int, slots: int) -> Params:
    """Reduce the rate, round what is too fine, and check that a whole burst fits."""
    divisor = gcd(amount, period_us)
    a, p = amount // divisor, period_us // divisor
    if a > FINEST and p < a:
        # Below a microsecond a unit, rounding to 1/8192 us would cost more than the 0.012 % that is promised.
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
    """The largest exact amount not above this one, by the small divisors of the period; time has no others."""
    divisors = {1}
    for prime in (2, 3, 5, 7):
        for divisor in sorted(divisors):
            while period_us % (divisor * prime) == 0:
                divisor *= prime
                divisors.add(divisor)
    return max(min(amount // divisor, FINEST) * divisor for divisor in divisors)


def words(params: Params) -> int:
    """Microseconds and a-ths share one ordered word."""
    return 1


def kernel(params: Params) -> str:
    """One kernel serves every rate."""
    return "kernel"


def at_grant(mark: tuple[int, int], granted_us: int) -> tuple[int, int]:
    """Counted from the grant, no overlap of give-backs can lend more than was taken."""
    return (granted_us, 0)
