"""A fixed window whose bounds travel with the call: calendar windows, and windows that begin at another time by key.

The parameters have five seams: the beginnings of the window before, of this one, and of the three that follow. The
store's clock picks the window, so a store needs no calendar, and a caller's clock may be off by up to a window. The
state is the beginning of the window that was charged last, and its count.

A beginning that is none of the seams was written under other seams: by a process with other rules for its zone, or
(when a full table compares its keys) for a key that begins elsewhere. Such a window is as long as this one.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from headgate.algorithms.contract import NEVER, State, Verdict, keep_mark, only_kernel, refuse_loan
from headgate.errors import InvalidLimit

KIND: Final = "bounds"
LENDS: Final = False
SIZED: Final = False
SEAMS: Final = 5

kernel, at_grant, lend = only_kernel, keep_mark, refuse_loan
"""A mark is the beginning of the window that was charged."""


class Params(NamedTuple):
    """A limit, compiled, and the seams around an instant; they are 0 until the limit is placed in time."""

    limit: int
    seam0: int = 0
    seam1: int = 0
    seam2: int = 0
    seam3: int = 0
    seam4: int = 0


def fit(amount: int, period_us: int, burst: int, slots: int) -> Params:
    """Return parameters without seams; any amount fits, since nothing is multiplied."""
    if burst != amount:
        raise InvalidLimit(f"burst {burst}: a window lets its whole amount pass at once, so its burst is {amount}")
    return Params(amount)


def words(params: Params) -> int:
    """Return 2: the beginning of the window, and the count."""
    return 2


def fresh(params: Params) -> State:
    """Return a window of long ago, with no count."""
    return [0, 0]


def answer(state: State, params: Params, now: int, cost: int) -> Verdict:
    """Allow the cost if the count of the window stays within the limit."""
    start, count = state
    begin, end = _window(params, now)
    moved = start >= _window(params, end)[1]
    if start >= end and not moved:
        begin, end = _window(params, start)
    elif count and start not in params[1:] and start <= now < start + end - begin:
        begin, end = start, start + end - begin
    held = count if moved or start >= begin else 0
    allowed = cost == 0 or held + cost <= params.limit
    held += cost if allowed else 0
    left = max(1, end - now)
    retry = 0 if allowed else NEVER if cost > params.limit else left
    return Verdict(allowed, max(0, params.limit - held), retry, left if held else 0, (begin, 0), moved)


def charge(state: State, params: Params, mark: tuple[int, int], cost: int) -> None:
    """Move to the marked window (back with the same count, if the clock stepped back) and add the cost."""
    state[:] = [mark[0], cost + (state[1] if mark[0] <= state[0] else 0)]


def give(state: State, params: Params, now: int, mark: tuple[int, int], cost: int) -> None:
    """Subtract the cost from the window that was charged, while it still counts."""
    if state[0] == mark[0]:
        state[1] = max(0, state[1] - cost)


def _window(params: Params, at: int) -> tuple[int, int]:
    """Return beginning and end of the window of an instant; beyond the seams, of the nearest window."""
    place = 1
    while place < SEAMS - 1 and at >= params[1 + place]:
        place += 1
    return params[place], params[1 + place]
