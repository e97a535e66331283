"""The limits that are compared: as the user gives them, or one limit by every algorithm."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Final, NamedTuple

from headgate.algorithms import DEFAULT
from headgate.errors import InvalidCall, InvalidLimit
from headgate.limit import Limit, LimitWarning, as_limits
from headgate.wording import shown

EVERY: Final = ("sliding-log", "sliding-window/60", "sliding-window", "fixed-window", DEFAULT)
"""The exact algorithm first. `gcra` and `leaky-bucket` are the same equation as `token-bucket`."""


class Candidate(NamedTuple):
    """A limit to compare."""

    limit: Limit
    queue: bool = False
    """Whether requests wait for their turn, as in `3000/second queue 5000`."""


def compared(given: Sequence[Limit | str]) -> tuple[tuple[Candidate, ...], tuple[str, ...]]:
    """Return the limits to compare, and remarks on them: an algorithm that cannot hold the limit is left out."""
    if not given:
        raise InvalidCall("nothing to compare: give a limit, as in '60/minute'")
    remarks: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", LimitWarning)
        candidates = [Candidate(_one(each), "queue" in _words(each)) for each in given]
        if len(candidates) == 1 and _leaves_algorithm_open(given[0], candidates[0].limit):
            candidates, remarks = _by_every_algorithm(candidates[0].limit)
    return tuple(candidates), (*remarks, *dict.fromkeys(str(each.message) for each in caught))


def _words(given: Limit | str) -> set[str]:
    return set(given.lower().split()) if isinstance(given, str) else set()


def _one(given: Limit | str) -> Limit:
    found = as_limits(given, queues=True)
    if len(found) != 1:
        raise InvalidCall(
            f"{shown(given)} has {len(found)} limits: compare them one by one, or replay a policy with both in one rule"
        )
    if found[0].in_flight:
        raise InvalidCall(f"'{found[0]}' cannot be replayed: a log does not tell how long each request was in flight")
    if not found[0].amount:
        raise InvalidCall(f"'{found[0]}' refuses every request: there is nothing to compare; give an amount from 1")
    return found[0]


def _leaves_algorithm_open(given: Limit | str, limit: Limit) -> bool:
    return isinstance(given, str) and limit.algorithm == DEFAULT and not {"by", "queue"} & _words(given)


def _by_every_algorithm(limit: Limit) -> tuple[list[Candidate], list[str]]:
    candidates, remarks = [], []
    for name in EVERY:
        burst = limit.burst if name == DEFAULT else None  # windows and logs let their whole amount pass at once
        try:
            one = Limit(limit.amount, limit.period, burst=burst, algorithm=name, block=limit.block, name=limit.name)
            candidates.append(Candidate(one))
        except InvalidLimit as reason:
            remarks.append(f"{name} is left out: {reason}")
    return candidates, remarks
