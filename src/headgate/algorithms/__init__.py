"""The roster: the names of the algorithms, the step that runs each of them, and the terms of their contract.

To add an algorithm: one folder beside this file, one line in `ALGORITHMS`, one line in `roster.pxi`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from headgate.algorithms import bounds, bucket, concurrency, log, pause, window
from headgate.algorithms.contract import EXACT, NEVER, UNKNOWN, State, Step, Verdict
from headgate.errors import InvalidLimit
from headgate.wording import nearest

__all__ = [
    "ALGORITHMS", "CALENDAR", "DEFAULT", "EXACT", "IN_FLIGHT", "NEVER", "SCATTERED", "UNKNOWN", "Algorithm", "State",
    "Step", "Verdict", "algorithm_named", "bounds", "bucket", "log", "pause",
]  # fmt: skip


class Algorithm(NamedTuple):
    """An algorithm, as its name selects it."""

    name: str
    """The name as users write it: `sliding-window/60`."""
    step: Step
    slots: int = 0
    """The number of slots of a sliding window; 0 for every other algorithm."""


ALGORITHMS: Final = {
    algorithm.name: algorithm
    for algorithm in (
        Algorithm("token-bucket", bucket),
        Algorithm("gcra", bucket),
        Algorithm("leaky-bucket", bucket),
        Algorithm("fixed-window", window),
        Algorithm("sliding-window", window, slots=1),
        Algorithm("sliding-log", log),
    )
}
"""The algorithms of rates."""
IN_FLIGHT: Final = Algorithm("in-flight", concurrency)
"""The algorithm of a limit in flight: an amount at once, not per period."""
CALENDAR: Final = Algorithm("fixed-window", bounds)
"""The algorithm of a limit per month, or in a zone: a fixed window whose bounds the calendar gives."""
SCATTERED: Final = Algorithm("fixed-window scattered", bounds)
"""A fixed window that begins at another time for each key."""
DEFAULT: Final = "token-bucket"


def algorithm_named(name: str) -> Algorithm:
    """Return the algorithm of this name; `sliding-window/60` is `sliding-window` with 60 slots."""
    for other in (IN_FLIGHT, SCATTERED):
        if name == other.name:
            return other
    base, slash, divisions = name.partition("/")
    found = ALGORITHMS.get(base)
    if found is None:
        near = nearest(base, ALGORITHMS)
        hint = f"; did you mean {near}?" if near else "."
        raise InvalidLimit(f"unknown algorithm {name!r}{hint} Use one of {', '.join(ALGORITHMS)}, sliding-window/N")
    if not slash:
        return found
    if not found.slots:
        raise InvalidLimit(f"{name!r}: only sliding-window is divided into slots, as in sliding-window/60")
    if not (divisions.isascii() and divisions.isdigit() and int(divisions[:6]) > 0):
        raise InvalidLimit(f"{name!r}: the number of slots must be a whole number from 1, as in sliding-window/60")
    slots = int(divisions[:6])
    return found if slots == 1 else Algorithm(f"{base}/{slots}", found.step, slots)
