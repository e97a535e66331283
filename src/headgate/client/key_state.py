"""The knowledge of one process about one key: limits, pause, failures, and the rate found from refusals."""

from __future__ import annotations

import math

from headgate.client.credit import Credit
from headgate.client.learning import Learned
from headgate.client.line import Line
from headgate.client.rate_finder import RateFinder
from headgate.client.retry_budget import RetryBudget
from headgate.client.throttle import Throttle
from headgate.clock import SECOND


class KeyState:
    """The state of one key in this process."""

    __slots__ = (
        "_pause_us",
        "credit",
        "answered",
        "finder",
        "key",
        "learned",
        "line",
        "promised_us",
        "retry_budget",
        "throttle",
    )

    def __init__(self, key: str, learned: Learned) -> None:
        self.key = key
        self.learned = learned
        self.line = Line()
        """Callers that wait: all of them before the first answer, then those for which there is no place yet."""
        self.promised_us = 0
        """The instant of the last place that a caller of this process has reserved."""
        self.answered = False
        self.finder = RateFinder()
        self.credit = Credit()
        self.retry_budget = RetryBudget()
        self.throttle = Throttle()
        self._pause_us = 0

    def pause(self, now_us: int, seconds: float) -> None:
        """Note a pause; of two pauses the later end counts."""
        self.finder.paused(now_us, max(0.0, seconds - self.pause_left(now_us)))
        self._pause_us = max(self._pause_us, now_us + math.ceil(seconds * SECOND))

    def find_paused(self, now_us: int, seconds: float) -> None:
        """Note a pause of another process: its refusal is one for all, since they send at one pace together."""
        rate = self.learned.rate
        if rate is not None and not self.pause_left(now_us):
            self.finder.refused(now_us, rate)
        self.pause(now_us, seconds)

    def pause_left(self, now_us: int) -> float:
        """Return the seconds that are left of the pause, as far as this process knows."""
        return max(0, self._pause_us - now_us) / SECOND
