"""One request at a time to a server that has not answered yet: its first answer may tell its limits."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable


class FirstAnswer:
    """Lets one caller pass, and the others once that caller has an answer.

    If the caller comes back without one, the next caller passes. Waiting callers are called by a function, so threads
    and event loops can wait for the same server.
    """

    __slots__ = ("_asking", "_lock", "_waiting", "answered")

    def __init__(self) -> None:
        self.answered = False
        self._asking = False
        self._lock = threading.Lock()
        self._waiting: deque[Callable[[], None]] = deque()

    def ask(self, call: Callable[[], None]) -> bool:
        """Return True if the caller may pass now; else `call` is called when the caller may ask again."""
        with self._lock:
            if self.answered or not self._asking:
                self._asking = True
                return True
            self._waiting.append(call)
            return False

    def leave(self, call: Callable[[], None]) -> None:
        """Forget a caller that no longer waits; if it was called already, the next one is called in its place."""
        with self._lock:
            if call in self._waiting:
                self._waiting.remove(call)
                return
            called = [] if self._asking else self._next()
        for each in called:
            each()

    def end(self, answered: bool) -> None:
        """Note that the caller that passed has come back, with an answer or without."""
        if self.answered:
            return
        with self._lock:
            self._asking = False
            self.answered = answered
            called = list(self._waiting) if answered else self._next()
            if answered:
                self._waiting.clear()
        for call in called:
            call()

    def _next(self) -> list[Callable[[], None]]:
        return [self._waiting.popleft()] if self._waiting else []
