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

from headgate.algorithms.contract import NEVER, UNKNOWN, State, Verdict, keep_mark, only_kernel, refuse_loan
from headgate.errors import InvalidLimit
from headgate.layout import PERMIT_WORDS, PERMITS_AT, UNIT_BITS

KIND: Final = "concurrency"
LENDS: Final = False
SIZED: Final = True
MOST: Final = 100_000
SHORTEST: Final = 100_000
"""The shortest lease in microseconds: a lease is renewed four times in its lifetime."""

kernel, at_grant, lend = only_kernel, keep_mark, refuse_loan
"""A mark identifies its permit, and the time of a release cannot be promised."""


class Params(NamedTuple):
    """A limit, compiled."""

    limit: int
    ttl: int


def fit(amount: int, period_us: int, burst: int, slots: int) -> Params:
    """Check the limit. A permit takes 24 bytes in a table, so permits have a maximum; the period is the lease."""
    if burst != amount:
        raise InvalidLimit(f"burst {burst}: all permits may be taken at once, so the burst is {amount}")
    if amount > MOST:
        raise InvalidLimit(f"{amount} are too many permits for one key; at most {MOST}")
    if period_us < SHORTEST:
        raise InvalidLimit(f"ttl: a lease is renewed in the background and lasts at least {SHORTEST // 1000} ms")
    return Params(amount, period_us)


def words(params: Params) -> int:
    """Return the words for the number of permits, the number of units, and three words for each permit."""
    return PERMITS_AT + PERMIT_WORDS * params.limit


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
