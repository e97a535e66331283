"""Counts of a shedder, and the time after which a refused caller may come back."""

from __future__ import annotations

import math
from collections import deque
from random import random
from typing import Literal, get_args

from headgate.clock import SECOND

Reason = Literal["limit", "queue", "loop", "workers", "fleet", "deadline"]
"""Why a request was refused: no permit is free; it waited in vain, or was dropped from a full waiting room; it sat in
the event loop too long; the workers are too busy; the fleet is; its deadline cannot be met."""
REASONS: tuple[Reason, ...] = get_args(Reason)

WINDOW = 10
"""Seconds over which refusals are compared with admissions."""
LONGEST = 30


class Refusals:
    """Refused requests: in all, and of the last seconds."""

    def __init__(self) -> None:
        self.by_class: dict[tuple[str, Reason], int] = {}
        self._refused = 0
        self._seconds: deque[tuple[int, int, int]] = deque()
        """The counts at the start of each second in which a request was refused."""

    def refuse(self, now: int, admitted: int, request_class: str, reason: Reason) -> int:
        """Count a refusal; return the seconds after which its caller may come back. `admitted` counts from the start.

        The seconds grow with the refused part of the load, and chance spreads the callers over them.
        """
        second = now // SECOND
        seconds = self._seconds
        while seconds and seconds[0][0] <= second - WINDOW:
            seconds.popleft()
        if not seconds or seconds[-1][0] != second:
            seconds.append((second, admitted, self._refused))
        self._refused += 1
        self.by_class[request_class, reason] = self.by_class.get((request_class, reason), 0) + 1
        _, admitted_before, refused_before = seconds[0]
        ratio = (self._refused - refused_before) / max(1, admitted - admitted_before)
        return math.ceil(1 + random() * min(LONGEST, 2 * ratio))  # noqa: S311 - spreads callers, keeps no secret
