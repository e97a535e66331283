"""Sliding log: a stamp for every admitted unit, exact in every rolling window.

The state is the list of stamps, oldest first. A stamp counts while its age is below the period, and expires at exactly
one period. The retry is the instant at which enough stamps have expired for the cost.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final, NamedTuple

from headgate.algorithms.contract import NEVER, State, Verdict, keep_mark, only_kernel, refuse_loan
from headgate.errors import InvalidLimit

KIND: Final = "log"
LENDS: Final = False
SIZED: Final = True
MOST: Final = 1_000_000

kernel, at_grant, lend = only_kernel, keep_mark, refuse_loan
"""The instant of a mark identifies its stamps."""


class Params(NamedTuple):
    """A limit, compiled."""

    limit: int
    period: int


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


def fresh(params: Params) -> State:
    """Return a state without stamps."""
    return []


def answer(state: State, params: Params, now: int, cost: int) -> Verdict:
    """Allow the cost if it fits beside the stamps younger than a period."""
    newest = state[-1] if state else now
    moved = newest - now > params.period
    at = now if moved else max(now, newest)
    shift = newest - now if moved else 0
    gone = bisect_right(state, at + shift - params.period)
    held = len(state) - gone
    if cost and held + cost > params.limit:
        reset = newest - shift + params.period - now if held else 0
        remaining = max(0, params.limit - held)
        if cost > params.limit:
            return Verdict(False, remaining, NEVER, reset, (at, 0), moved)
        makes_room = state[gone + held + cost - params.limit - 1] - shift
        return Verdict(False, remaining, makes_room + params.period - now, reset, (at, 0), moved)
    reset = at + params.period - now if cost else newest - shift + params.period - now if held else 0
    return Verdict(True, max(0, params.limit - held - cost), 0, reset, (at, 0), moved)


def counting(state: State, params: Params, now: int) -> State:
    """Return the stamps that count at this instant, oldest first."""
    newest = state[-1] if state else now
    shift = newest - now if newest - now > params.period else 0
    at = now if shift else max(now, newest)
    return [stamp - shift for stamp in state[bisect_right(state, at + shift - params.period) :]]


def charge(state: State, params: Params, mark: tuple[int, int], cost: int) -> None:
    """Remove expired stamps, and add one stamp for each unit."""
    at = mark[0]
    if state and state[-1] > at:
        shift = state[-1] - at
        state[:] = [stamp - shift for stamp in state]
    del state[: bisect_right(state, at - params.period)]
    state.extend([at] * cost)


def give(state: State, params: Params, now: int, mark: tuple[int, int], cost: int) -> None:
    """Remove the newest `cost` stamps that are no newer than the mark."""
    end = bisect_right(state, mark[0])
    del state[max(0, end - cost) : end]
