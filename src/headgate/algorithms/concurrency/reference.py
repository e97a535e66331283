"""In flight: so many units may be held at once.

The state is the permits that are out, three integers each: the instant it was taken, its number and the units it still
holds. Instant and number are its mark; giving back finds the permit by it, so one that is given back twice, or after it
was lost, frees nobody else's. The number tells permits of one instant apart, and says how many units it was for.

When a permit comes back nobody can say: the retry of a no is `UNKNOWN`, and so is the reset while any is out. Whose
holder has died is found out by the home of the state (the process itself, a lock on a file, a lease of `ttl`
microseconds on a server's clock); here a permit is out until it is given back.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from headgate.algorithms.contract import NEVER, UNKNOWN, State, Verdict
from headgate.layout import UNIT_BITS

MOST: Final = 100_000


class Params(NamedTuple):
    """A limit, compiled."""

    limit: int
    ttl: int


def fresh(params: Params) -> State:
    """Nothing is out."""
    return []


def answer(state: State, params: Params, now: int, cost: int) -> Verdict:
    """Allowed while what is out leaves room."""
    held = sum(state[2::3])
    if cost and held + cost > params.limit:
        remaining = max(0, params.limit - held)
        return Verdict(False, remaining, NEVER if cost > params.limit else UNKNOWN, UNKNOWN if held else 0, (now, 0))
    taken = {number >> UNIT_BITS for at, number in zip(state[::3], state[1::3], strict=True) if at == now}
    serial = next(each for each in range(len(taken) + 1) if each not in taken)
    reset = UNKNOWN if held + cost else 0
    return Verdict(True, max(0, params.limit - held - cost), 0, reset, (now, serial << UNIT_BITS | cost))


def charge(state: State, params: Params, mark: tuple[int, int], cost: int) -> None:
    """Hand out a permit."""
    if cost:
        state += (*mark, cost)


def give(state: State, params: Params, now: int, mark: tuple[int, int], cost: int) -> None:
    """Take units of a permit back, as far as it is still out."""
    for at in range(0, len(state), 3):
        if (state[at], state[at + 1]) == mark:
            state[at + 2] -= min(cost, state[at + 2])
            if not state[at + 2]:
                del state[at : at + 3]
            return
