"""Sliding log: a stamp for every admitted unit, exact in every rolling window.

The state is the list of stamps, oldest first. A stamp counts while its age is below the period, and expires at exactly
one period. The retry is the instant at which enough stamps have expired for the cost.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from headgate.algorithms.contract import NEVER, State, Verdict


class Params(NamedTuple):
    """A limit, compiled."""

    limit: int
    period: int


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
