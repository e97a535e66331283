"""The tokens of the last window, for servers that count them in an exact log.

A pace keeps to a rate, but single calls take up to some percents of a limit, and a call is charged before its answer is
known. So beside the pace every call must fit into a sliding window of its server's limit, in the same store. A call is
charged more than it will probably take; the rest comes back, to the slot that was charged, when its answer is there.
The window then differs from the server's log by the calls under way alone, and their sum is known well: `Spread`.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Mapping
from typing import Final

from headgate.client.pacing import counts_tokens
from headgate.clock import SECOND
from headgate.forks import after_fork
from headgate.limit import Limit

SLOTS: Final = 480
"""The parts of a window."""
MORE: Final = 3
"""The parts beside them that count too: the oldest is blended, and a call is charged up to 0.2 s before it is sent."""
TIMES: Final = 2
"""The numbers in a window are up to this times the limit: what was used is charged also where too much was."""
WEIGHT: Final = 0.01
"""The weight of a new answer in the running means; the first hundred count alike."""
ABOVE: Final = 2
"""The standard deviations of a call that are charged beside its expected cost: few answers take more."""
SAFE: Final = 3.5
"""The standard deviations of all calls under way that are left free."""
MOST: Final = 0.2
"""The largest part of a limit that is left free, or used twice, for the calls under way."""
STEPS: Final = 500
"""The steps of a limit in which that part is chosen, since each is a plan of its own."""


def windows_of(limits: Iterable[Limit]) -> tuple[Limit, ...]:
    """Return the windows of those limits that count tokens."""
    return tuple([_window(limit) for limit in limits if counts_tokens(limit.name)])


def _window(limit: Limit) -> Limit:
    unit = 10 ** max(0, len(str(limit.period_us)) - 4)  # a coarse period has room for a large amount
    period_us = -(-limit.period_us * (SLOTS + MORE) // SLOTS // unit) * unit
    algorithm = f"sliding-window/{SLOTS + MORE}"
    return Limit(TIMES * limit.amount, period_us / SECOND, algorithm=algorithm, name=limit.name)


class Spread:
    """By how much the calls of one limit differ from what was charged for them; safe for threads.

    With D the seconds of a call and E its real cost less its charge, the calls under way at a rate of L calls a second
    differ by L mean(E D) in the mean, with a variance of L mean(E^2 D): long answers are under way for longer.
    """

    def __init__(self) -> None:
        self._answers = 0
        self._cost = self._square = self._late = self._late_square = 0.0
        self._renew()
        after_fork(self._renew)

    def _renew(self) -> None:
        self._lock = threading.Lock()

    def add(self, used: int, expected: int, charged: int, seconds: float) -> None:
        """Count one more answer."""
        error = used - charged
        with self._lock:
            self._answers += 1
            weight = max(WEIGHT, 1 / self._answers)
            self._cost += weight * (used - self._cost)
            if self._answers == 1:  # nothing was known by which its cost could be expected
                return
            self._square += weight * ((used - expected) ** 2 - self._square)
            self._late += weight * (error * seconds - self._late)
            self._late_square += weight * (error * error * seconds - self._late_square)

    def charge(self, expected: int) -> int:
        """Return the cost to charge for a call."""
        return expected + math.ceil(ABOVE * math.sqrt(self._square))

    def room(self, window: Limit) -> Limit:
        """Return the window with as many units as calls may be charged now."""
        amount = window.amount // TIMES
        free = 0.0
        if self._cost > 0:
            calls = amount * SECOND / window.period_us / self._cost  # a second, if the limit is used up
            free = (calls * self._late + SAFE * math.sqrt(calls * self._late_square)) / amount
        steps = math.ceil(min(max(free, -MOST), MOST) * STEPS)
        return window.replace(amount=max(1, amount - amount * steps // STEPS))


class Spreads:
    """The spreads of one key, by the names of its limits."""

    def __init__(self) -> None:
        self._by_name: dict[str, Spread] = {}

    def of(self, name: str) -> Spread:
        """Return the spread of one limit."""
        return self._by_name.get(name) or self._by_name.setdefault(name, Spread())

    def rooms(self, windows: tuple[Limit, ...]) -> tuple[Limit, ...]:
        """Return what may be charged now, of each window."""
        return tuple([self.of(window.name).room(window) for window in windows])

    def charges(self, windows: tuple[Limit, ...], costs: Mapping[str, int]) -> dict[str, int]:
        """Return what a call is charged in each window."""
        return {window.name: self.of(window.name).charge(costs.get(window.name, 1)) for window in windows}
