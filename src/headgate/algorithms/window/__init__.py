"""Fixed window, sliding window counter and sub-windows: counts of aligned slots.

`slots` = 0 is the fixed window: one count, reset when the next window begins. `slots` = n >= 1 divides the period into
n slots and blends them: the oldest slot counts for the part of it that the window still covers, rounded down. A slot
may begin between two ticks; only its number and the phase inside it matter, so n need not divide the period.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from headgate.algorithms.contract import EXACT, NEVER, State, Verdict, keep_mark, refuse_loan
from headgate.clock import DAY, WEEK
from headgate.errors import InvalidLimit

KIND: Final = "window"
LENDS: Final = False
SIZED: Final = False
MOST_SLOTS: Final = 10_000
FIRST_MONDAY: Final = 4 * DAY
"""1970-01-05: windows of whole weeks begin on a Monday."""

at_grant, lend = keep_mark, refuse_loan
"""A mark is the slot that was charged."""


class Params(NamedTuple):
    """A limit, compiled. `period` is in ticks of `tick` microseconds; `offset` (us) aligns windows of whole weeks."""

    limit: int
    period: int
    slots: int
    tick: int
    offset: int
    blendable: int
    """The largest count that may be multiplied; a count can exceed the limit only after the limit was lowered."""


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


def fresh(params: Params) -> State:
    """Return a slot number and zero counts by age, the current slot first."""
    return [0] * (2 + params.slots)


def answer(state: State, params: Params, now: int, cost: int) -> Verdict:
    """Allow the cost if the blended count stays within the limit."""
    slot, phase = _place(params, now)
    newest = state[0]
    moved = newest > slot and _start(params, newest) - now > params.period * params.tick
    if newest > slot and not moved:
        slot, phase = newest, 0
    counts = _aged(state, 0 if moved else slot - newest)
    estimate = _estimate(params, counts, phase)
    fits = cost == 0 or estimate + cost <= params.limit
    if not fits:
        remaining = max(0, params.limit - estimate)
        retry = NEVER if cost > params.limit else _wait(params, counts, slot, phase, params.limit - cost, now)
        reset = _wait(params, counts, slot, phase, 0, now)
        return Verdict(False, remaining, retry, reset, (slot, 0), moved)
    counts[0] += cost
    reset = _wait(params, counts, slot, phase, 0, now)
    return Verdict(True, max(0, params.limit - estimate - cost), 0, reset, (slot, 0), moved)


def charge(state: State, params: Params, mark: tuple[int, int], cost: int) -> None:
    """Move to the marked slot (back with the same counts, if the clock stepped back) and add the cost to its count."""
    counts = _aged(state, max(0, mark[0] - state[0]))
    counts[0] += cost
    state[:] = [mark[0], *counts]


def give(state: State, params: Params, now: int, mark: tuple[int, int], cost: int) -> None:
    """Subtract the cost from the slot that was charged, while that slot still counts."""
    age = state[0] - mark[0]
    if 0 <= age < len(state) - 1:
        state[1 + age] = max(0, state[1 + age] - cost)


def _place(params: Params, now: int) -> tuple[int, int]:
    """Return the number of the slot at `now`, and the position in it (0 <= phase < period, in slot-ticks)."""
    per_period = params.slots or 1
    whole, rest = divmod((now + params.offset) // params.tick, params.period)
    inside, phase = divmod(rest * per_period, params.period)
    return whole * per_period + inside, phase


def _start(params: Params, slot: int, phase: int = 0) -> int:
    """Return the first microsecond at which `_place` returns this slot and phase, or a later one."""
    per_period = params.slots or 1
    whole, inside = divmod(slot, per_period)
    ticks = whole * params.period + -(-(inside * params.period + phase) // per_period)
    return ticks * params.tick - params.offset


def _aged(state: State, by: int) -> list[int]:
    """Return the counts by age (0 = current slot) after a move by `by` slots."""
    counts = state[1:]
    kept = max(0, len(counts) - by)
    return [0] * (len(counts) - kept) + counts[:kept]


def _estimate(params: Params, counts: list[int], phase: int) -> int:
    """Return the blended count: whole slots, plus the covered part of the oldest slot."""
    if not params.slots:
        return counts[0]
    leaving = min(counts[-1], params.blendable)
    return sum(counts[:-1]) + leaving * (params.period - phase) // params.period


def _wait(params: Params, counts: list[int], slot: int, phase: int, room: int, now: int) -> int:
    """Return the microseconds from `now` until the estimate is at most `room`, if nothing more is charged."""
    if not params.slots:
        return 0 if counts[0] <= room else _start(params, slot + 1) - now
    period, last = params.period, len(counts) - 1
    whole = sum(counts[:last])
    for age in range(last, -1, -1):  # the slot of this age is then the oldest
        if whole <= room:
            spare = room - whole
            leaving = min(counts[age], params.blendable)
            need = 0 if leaving <= spare else period - ((spare + 1) * period - 1) // leaving
            if age == last and need <= phase:
                return 0
            if need < period:
                return _start(params, slot + last - age, need) - now
        whole -= counts[age - 1] if age else 0
    return _start(params, slot + last + 1) - now
