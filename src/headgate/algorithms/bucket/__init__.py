"""Token bucket, GCRA and leaky bucket as a meter: one equation under three names.

The rate is the reduced fraction a/p units per microsecond. The state is one instant, the theoretical arrival time, a
pair (us, num) that means us + num/a exactly: the instant at which the bucket is full (token bucket), the next cell is
due (GCRA) or the bucket is empty (leaky meter). A cost moves the instant p/a microseconds per unit into the future; the
instant may not pass now + burst * p/a.

A state outlives the numbers of its limit: when a key changes its plan, another a and p read the state. So the state
does not hold num, which has a meaning only with its a, but the fraction in `FINEST`-ths, rounded up. The a-ths of one
plan are at least that far apart, so a plan reads its own instants back exactly. Another plan reads the first of its own
a-ths that is not earlier by a whole `FINEST`-th: an instant moves less than 1/8192 us towards the caller and less than
1/a us away. (13 bits cannot round away from the caller only: plans of 8191 and of 8192 parts share codes.)

Under every plan the instant is that of a full bucket, because tables and servers forget full keys without knowing
their limits. A change of plan does not shorten the time to that instant: under a plan whose whole burst drains sooner,
a key waits until that time is no longer than its burst. So each plan's bound holds in any mixture of plans: a charge
moves the instant by its whole time, and never beyond now + burst * p/a of its own plan.
"""

from __future__ import annotations

from math import gcd
from typing import Final, NamedTuple

from headgate.algorithms.contract import EXACT, NEVER, State, Verdict, only_kernel
from headgate.clock import HOUR
from headgate.errors import InvalidLimit
from headgate.layout import FRACTION_BITS

FINEST: Final = 1 << FRACTION_BITS
"""The parts of a microsecond in a state: 13 bits beside 50 bits of microseconds."""
KIND: Final = "bucket"
LENDS: Final = True
SIZED: Final = False
LONGEST: Final = 2**48
"""A full burst must drain within this many microseconds (8.9 years)."""

kernel = only_kernel


class Params(NamedTuple):
    """A limit, compiled. Pairs are (whole microseconds, a-ths of one)."""

    burst: int
    a: int
    p: int
    unit_us: int
    unit_num: int
    depth_us: int
    depth_num: int
    slack_us: int
    """An arrival time this far beyond a full burst means that the clock stepped back: a period, because another plan
    may have a larger burst, and at least an hour, because a reservation may be an hour ahead."""


def is_exact(amount: int, period_us: int) -> bool:
    """Return whether the rate is an exact fraction; otherwise its interval is rounded up by at most 1/8192 us."""
    return amount // gcd(amount, period_us) <= FINEST


def fit(amount: int, period_us: int, burst: int, slots: int) -> Params:
    """Reduce the rate, round a fraction that is too fine, and check that a whole burst fits."""
    amount = amount or 1  # without a burst nothing passes at any rate
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


def at_grant(mark: tuple[int, int], granted_us: int) -> tuple[int, int]:
    """Return the time of the grant: from there, overlapping refunds cannot give back more than was charged."""
    return (granted_us, 0)


def fresh(params: Params) -> State:
    """Return an arrival time in the past: a full bucket."""
    return [0, 0]


def increment(params: Params, cost: int) -> tuple[int, int]:
    """Return how far `cost` units move the arrival time: cost * p/a, as a pair. Requires cost <= burst."""
    spare = cost * params.unit_num
    return cost * params.unit_us + spare // params.a, spare % params.a


def answer(state: State, params: Params, now: int, cost: int) -> Verdict:
    """Allow the cost if the arrival time stays within a full burst of now."""
    full = (now + params.depth_us, params.depth_num)
    base = max(_read(state, params), (now, 0))
    moved = base[0] > full[0] + params.slack_us
    if moved:
        base = full
    if cost > params.burst:
        return Verdict(False, _units(params, base, full), NEVER, _until(base, now), base, moved)
    inc_us, inc_num = increment(params, cost)
    carry, num = divmod(base[1] + inc_num, params.a)
    end = (base[0] + inc_us + carry, num)
    if end <= full or cost == 0:
        return Verdict(True, _units(params, end, full), 0, _until(end, now), base, moved)
    retry = end[0] - full[0] + (end[1] > full[1])
    return Verdict(False, _units(params, base, full), retry, _until(base, now), base, moved)


def lend(params: Params, now: int, cost: int, refusal: Verdict) -> Verdict:
    """Allow a refused cost for later: until the arrival time is within a burst again, every other call is refused."""
    inc_us, inc_num = increment(params, cost)
    carry, num = divmod(refusal.mark[1] + inc_num, params.a)
    end = (refusal.mark[0] + inc_us + carry, num)
    return refusal._replace(allowed=True, remaining=0, reset_us=_until(end, now))


def charge(state: State, params: Params, mark: tuple[int, int], cost: int) -> None:
    """Move the arrival time on from the mark that `answer` returned."""
    inc_us, inc_num = increment(params, cost)
    carry, num = divmod(mark[1] + inc_num, params.a)
    _write(state, params, mark[0] + inc_us + carry, num)


def give(state: State, params: Params, now: int, mark: tuple[int, int], cost: int) -> None:
    """Move the arrival time back by the part of the cost that has not drained since `mark`.

    An arrival time beyond a burst from now was promised to callers that still wait. If it moved back, it would be
    promised to other callers again, so then only the charge of the last caller can be given back.
    """
    inc_us, inc_num = increment(params, min(cost, params.burst))
    drained_us = max(0, now - mark[0])
    if drained_us > inc_us + 1:
        return
    carry, num = divmod(mark[1] + inc_num, params.a)
    tat = _read(state, params)
    if tat > (now + params.depth_us, params.depth_num) and tat != (mark[0] + inc_us + carry, num):
        return
    back = (inc_us - drained_us) * params.a + inc_num + (mark[1] if drained_us else 0)
    if back > 0:
        borrow, num = divmod(tat[1] - back % params.a, params.a)
        _write(state, params, tat[0] - back // params.a + borrow, num)


def _read(state: State, params: Params) -> tuple[int, int]:
    """Return the arrival time in a-ths: exact for the plan that wrote it, rounded for another plan."""
    carry, num = divmod((state[1] - 1) * params.a // FINEST + 1, params.a)
    return state[0] + carry, num


def _write(state: State, params: Params, us: int, num: int) -> None:
    """Store the fraction in parts that every plan can read, rounded up."""
    state[:] = (us, -(-num * FINEST // params.a))


def _units(params: Params, base: tuple[int, int], full: tuple[int, int]) -> int:
    """Return the largest cost whose increment fits between base and full."""
    return max(0, (full[0] - base[0]) * params.a + full[1] - base[1]) // params.p


def _until(base: tuple[int, int], now: int) -> int:
    """Return the microseconds from now to base, rounded up."""
    return max(0, base[0] - now + (base[1] > 0))


def departs(params: Params, verdict: Verdict, cost: int) -> int:
    """Return the microseconds until a charge made just now begins to drain: its place in the queue.

    The reset counts to the end of the charge, and the mark is its beginning, so neither the state nor the current time
    is needed.
    """
    inc_us, inc_num = increment(params, cost)
    carry, num = divmod(verdict.mark[1] + inc_num, params.a)
    length = inc_us + carry + (num > 0) - (verdict.mark[1] > 0)
    return max(0, verdict.reset_us - length)


def starting_within(params: Params, wait_us: int, cost: int) -> Params:
    """Return the same bucket for calls of this cost that must begin to drain within `wait_us`.

    The bound that detects a clock that stepped back stays the same, because other calls may be further ahead.
    """
    inc_us, inc_num = increment(params, min(cost, params.burst))
    depth_us, depth_num = min((params.depth_us, params.depth_num), (wait_us + inc_us, inc_num))
    slack_us = params.slack_us + params.depth_us - depth_us
    return params._replace(depth_us=depth_us, depth_num=depth_num, slack_us=slack_us)


def usable_at(params: Params, mark: tuple[int, int], cost: int) -> int:
    """Return the instant from which a charge at this mark is within a burst: the start of its reservation."""
    inc_us, inc_num = increment(params, cost)
    carry, num = divmod(mark[1] + inc_num, params.a)
    return mark[0] + inc_us + carry - params.depth_us + (num > params.depth_num)
