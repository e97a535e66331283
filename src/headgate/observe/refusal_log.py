"""A log of refusals: the first of a key in a minute, ten lines a second at most, and how many were left out."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from headgate.engine import Decision
from headgate.wording import log_of

MINUTE: Final = 60.0
MOST: Final = 10
"""The most lines of one second. So a minute has at most 600 keys to remember."""
log = log_of("headgate.refusals")


class RefusalLog:
    """Writes refusals to the log `headgate.refusals`, with rule, key, limit and `retry_after` in `extra`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.forget()

    def forget(self) -> None:
        """Start anew; in a forked child, another thread may hold the lock."""
        self._lock = threading.Lock()
        self._minute = self._second = -1
        self._logged: set[tuple[str, str]] = set()
        self._lines = 0
        self._left_out = 0

    def write(self, rule: str, key: str, decision: Decision) -> None:
        """Log a refusal, unless the key was logged in this minute or too many lines were written in this second."""
        if not log.isEnabledFor(20):
            return
        left_out = 0
        with self._lock:
            now = self._clock()
            if int(now // MINUTE) != self._minute:
                self._minute, self._logged = int(now // MINUTE), set()
            if (rule, key) in self._logged:
                return
            if int(now) != self._second:
                self._second, self._lines, left_out, self._left_out = int(now), 0, self._left_out, 0
            if self._lines >= MOST:
                self._left_out += 1
                return
            self._lines += 1
            self._logged.add((rule, key))
        if left_out:
            log.info("%d refusals of other keys were left out", left_out, extra={"left_out": left_out})
        limit, wait = str(decision.binding), decision.retry_after
        told = {"rule": rule, "key": key, "limit": limit, "retry_after": wait}
        log.info("rule %s refused %r: %s, retry after %s s", rule, key, limit, wait, extra=told)
