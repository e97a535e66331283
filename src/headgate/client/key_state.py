"""The knowledge of one process about one key: limits, pause, failures, and the rate found from refusals."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from headgate.client.credit import Credit
from headgate.client.learning import Learned
from headgate.client.line import Line
from headgate.client.pacing import slower
from headgate.client.pending_counts import PendingCounts
from headgate.client.rate_finder import RateFinder
from headgate.client.retry_budget import RetryBudget
from headgate.client.slowness import Slowness
from headgate.client.throttle import Throttle
from headgate.client.token_window import Spreads
from headgate.clock import SECOND
from headgate.limit import Limit


class KeyState:
    """The state of one key in this process."""

    __slots__ = (
        "_finder",
        "_pause_us",
        "_retry_budget",
        "_throttle",
        "answered",
        "pending_counts",
        "credit",
        "full_until_us",
        "hit_in_loops",
        "hit_in_threads",
        "key",
        "learned",
        "line",
        "promised_us",
        "slowness",
        "spreads",
    )

    def __init__(self, key: str, learned: Learned) -> None:
        self.key = key
        self.learned = learned
        self.line = Line()
        """Callers that wait: all of them before the first answer, then those for which there is no place yet."""
        self.promised_us = 0
        """The instant of the last place that a caller of this process has reserved."""
        self.full_until_us = 0
        """Until this instant callers reserve a place, since there was none to be had at once."""
        self.answered = False
        self.hit_in_threads: Callable[[str], Any] | None = None
        self.hit_in_loops: Callable[[str], Any] | None = None
        """Takes a place at once, if the key is calm; None if it is not known to be."""
        self.credit = Credit()
        self._finder, self._retry_budget, self._throttle = RateFinder(), RetryBudget(), Throttle()
        self.slowness = Slowness()
        self.spreads = Spreads()
        self.pending_counts = PendingCounts(self._finder, self._retry_budget, self._throttle)
        self._pause_us = 0

    @property
    def finder(self) -> RateFinder:
        """The rate that is found from refusals."""
        self.pending_counts.tell()
        return self._finder

    @property
    def retry_budget(self) -> RetryBudget:
        """The budget of retries."""
        self.pending_counts.tell()
        return self._retry_budget

    @property
    def throttle(self) -> Throttle:
        """The throttle of a server that fails."""
        self.pending_counts.tell()
        return self._throttle

    def stir(self) -> None:
        """Let the next request look whether the key is calm.

        Comes after changes that end a calm. Callers that wait and places that are promised need not tell: a request
        that finds no place looks.
        """
        self.hit_in_threads = self.hit_in_loops = None

    def is_calm(self, now_us: int) -> bool:
        """Return whether requests may ask for a place at once: no caller waits, and nothing is wrong with the server.

        Time alone does not end a calm.
        """
        return (
            self.answered
            and not self.line.busy
            and now_us >= self.promised_us
            and now_us >= self.full_until_us
            and now_us >= self._pause_us
            and now_us >= self._throttle.failing_until_us
            and self._finder.is_idle
            and self.slowness.share == 1
            and not self.learned.spread_until_us
        )

    def pause(self, now_us: int, seconds: float) -> None:
        """Note a pause; of two pauses the later end counts."""
        self.finder.paused(now_us, max(0.0, seconds - self.pause_left(now_us)))
        self._pause_us = max(self._pause_us, now_us + math.ceil(seconds * SECOND))
        self.stir()

    def refused(self, now_us: int) -> None:
        """Slow down after a refusal by a limit; where tokens are counted, a rate of requests says little."""
        if self.learned.weighs:
            return
        if self.learned.rate is None:
            self.finder.refused(now_us)
        else:
            self.slowness.refused(now_us)

    def paces(self, now_us: int) -> tuple[Limit, ...]:
        """Return the paces of this instant."""
        paces, share = self.learned.at(now_us), self.slowness.at(now_us)
        return paces if share == 1 else tuple(slower(pace, share) for pace in paces)

    def find_paused(self, now_us: int, seconds: float) -> None:
        """Note a pause of another process: its refusal is one for all, since they send at one pace together."""
        if self.learned.rate is not None and not self.pause_left(now_us):
            self.slowness.refused(now_us)
        self.pause(now_us, seconds)

    def pause_left(self, now_us: int) -> float:
        """Return the seconds that are left of the pause, as far as this process knows."""
        return max(0, self._pause_us - now_us) / SECOND
