"""What one process knows of one key: its limits, its pause, its failures, and the rate found from refusals."""

from __future__ import annotations

import math

from headgate.client.first_answer import FirstAnswer
from headgate.client.learning import Learned
from headgate.client.retry_budget import RetryBudget
from headgate.clock import SECOND


class KeyState:
    """The state of one key in this process."""

    __slots__ = ("_pause_us", "first", "key", "learned", "retry_budget")

    def __init__(self, key: str, learned: Learned) -> None:
        self.key = key
        self.learned = learned
        self.first = FirstAnswer()
        self.retry_budget = RetryBudget()
        self._pause_us = 0

    def pause(self, now_us: int, seconds: float) -> None:
        """Note a pause; of two pauses the later end counts."""
        self._pause_us = max(self._pause_us, now_us + math.ceil(seconds * SECOND))

    def pause_left(self, now_us: int) -> float:
        """Return the seconds that are left of the pause, as far as this process knows."""
        return max(0, self._pause_us - now_us) / SECOND
