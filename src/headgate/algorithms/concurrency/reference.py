"""In flight: an amount of units may be held at once.

The state is the list of held permits, three integers each: the instant of the charge, a number and the units held.
Instant and number are the permit's mark, by which `give` finds it; so a permit that is given back twice, or after it
was lost, frees no other. The number distinguishes permits of one instant, and contains the permit's original units.

The time of a release is not known: the retry of a refusal is `UNKNOWN`, and so is the reset while a permit is held. The
store notices when a holder has died (by the process itself, by a lock on a file, or by a lease of `ttl` microseconds on
a server's clock); in this step a permit is held until it is given back.
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
    """Return a state without permits."""
    return []


def answer(state: State, params: Params, now: int, cost: int) -> Verdict:
    """Allow the cost if it fits beside the units that are held."""
    held = sum(state[2::3])
    if cost and held + cost > params.limit:
        remaining = max(0, params.limit - held)
        return Verdict(False, remaining, NEVER if cost > params.limit else UNKNOWN, UNKNOWN if held else 0, (now, 0))
    taken = {number >> UNIT_BITS for at, number in zip(state[::3], state[1::3], strict=True) if at == now}
    serial = next(each for each in range(len(taken) + 1) if each not in taken)
    reset = UNKNOWN if held + cost else 0
    return Verdict(True, max(0, params.limit - held - cost), 0, reset, (now, serial << UNIT_BITS | cost))


def charge(state: State, params: Params, mark: tuple[int, int], cost: int) -> None:
    """Record a permit."""
    if cost:
        state += (*mark, cost)


def give(state: State, params: Params, now: int, mark: tuple[int, int], cost: int) -> None:
    """Take units of a permit back, if it is still held."""
    for at in range(0, len(state), 3):
        if (state[at], state[at + 1]) == mark:
            state[at + 2] -= min(cost, state[at + 2])
            if not state[at + 2]:
                del state[at : at + 3]
            return
