"""Virtual time: events in order, and one source of chance."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from random import Random
from typing import Any

from headgate.clock import HandClock

Event = Callable[..., None]


class World(HandClock):
    """A clock, and the events to come."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.random = Random(seed)  # noqa: S311 - repeatable chance
        self._events: list[tuple[int, int, Event, tuple[Any, ...]]] = []
        self._serial = 0

    def after(self, delay: float, event: Event, *arguments: Any) -> None:  # noqa: ANN401 - passed on
        """Call `event` after `delay` microseconds; events of one instant happen in the order they were set."""
        self._serial += 1
        heapq.heappush(self._events, (self.us + int(delay), self._serial, event, arguments))

    def run(self, until: int) -> None:
        """Let all events before `until` happen."""
        events = self._events
        while events and events[0][0] < until:
            self.us, _, event, arguments = heapq.heappop(events)
            event(*arguments)
        self.us = until

    def exponential(self, mean: float) -> float:
        """Draw from the exponential distribution."""
        return self.random.expovariate(1) * mean

    def lognormal(self, mean: float, variation: float = 1.0) -> float:
        """Draw from the lognormal distribution with this mean and coefficient of variation."""
        sigma = math.sqrt(math.log(1 + variation * variation))
        return self.random.lognormvariate(math.log(mean) - sigma * sigma / 2, sigma)
