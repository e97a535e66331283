"""A pause: one instant, until which every call of a key is refused.

The state is that instant. Two sets of parameters read it. With `sets` 0 the step guards: it refuses every cost above 0
until the instant, and charges nothing. With `sets` 1 the cost is a time: a charge moves the instant to that time from
now, but never to an earlier instant, so of two pauses the later counts and pauses do not add up.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from headgate.algorithms.contract import EXACT, State, Verdict, keep_mark, only_kernel
from headgate.clock import DAY
from headgate.errors import InvalidLimit

KIND: Final = "pause"
LENDS: Final = True
SIZED: Final = False
LONGEST: Final = DAY
"""The longest pause in microseconds. An instant that is further ahead means that the clock stepped back."""

kernel, at_grant = only_kernel, keep_mark


class Params(NamedTuple):
    """A limit, compiled: `sets` is 1 for a call that sets a pause, whose cost is its time."""

    burst: int
    longest: int
    sets: int


GUARD: Final = Params(0, LONGEST, 0)
SETS: Final = Params(0, LONGEST, 1)


def fit(amount: int, period_us: int, burst: int, slots: int) -> Params:
    """Raise: a pause has no numbers."""
    raise InvalidLimit("a pause is not a limit: write pausable=True, and limiter.pause(key, seconds)")


def words(params: Params) -> int:
    """Return 1: the instant."""
    return 1


def fresh(params: Params) -> State:
    """Return an instant that is over."""
    return [0]


def answer(state: State, params: Params, now: int, cost: int) -> Verdict:
    """Refuse a cost until the instant; or allow a pause, whose mark is the later of both instants."""
    moved = state[0] > now + params.longest
    until = now + params.longest if moved else state[0]
    if params.sets and cost:
        until = max(until, now + min(cost, params.longest))
    left = max(0, until - now)
    allowed = not (cost and left) or bool(params.sets)
    return Verdict(allowed, 0 if left else EXACT, 0 if allowed else left, left, (until, 0), moved)


def lend(params: Params, now: int, cost: int, refusal: Verdict) -> Verdict:
    """Allow a refused cost for later: from the end of the pause."""
    return refusal._replace(allowed=True)


def charge(state: State, params: Params, mark: tuple[int, int], cost: int) -> None:
    """Keep the instant of the mark."""
    state[0] = mark[0]


def give(state: State, params: Params, now: int, mark: tuple[int, int], cost: int) -> None:
    """Give nothing back: a guard charges nothing, and a pause ends by itself or by a reset."""
