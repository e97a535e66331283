"""A line of callers, of which the first takes its turn while the others wait."""

from __future__ import annotations

import threading
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

from headgate.forks import after_fork

Call = Callable[[], bool]
"""Lets a waiting caller in; returns False if that caller is gone."""
IsGone = Callable[[], bool]
"""Returns True if a caller can never leave: its event loop was closed while the caller was inside."""


def never_gone() -> bool:
    """Return False: a thread always comes to its end."""
    return False


class Line:
    """Lets one caller in, and the next one when that caller leaves, in the order of their tickets.

    A caller that has to come back keeps its ticket, and so its place. Waiting callers are called by a function, so
    threads and event loops can wait in the same line.
    """

    def __init__(self) -> None:
        self._tickets = count()
        self._renew()
        after_fork(self._renew)

    def _renew(self) -> None:
        """A forked child has none of the callers."""
        self._lock = threading.Lock()
        self.busy = False
        """True while a caller is inside."""
        self._is_gone: IsGone = never_gone
        self._waiting: dict[int, tuple[Call, IsGone]] = {}
        self._order: list[int] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def ticket(self) -> int:
        """Return a place behind all others."""
        return next(self._tickets)

    def enter(self, ticket: int, call: Call, is_gone: IsGone = never_gone) -> bool:
        """Return True if the caller is inside now; else `call` is called once it is.

        A caller that is gone is not waited for; the next caller that comes takes its place.
        """
        with self._lock:
            if not self.busy or self._is_gone():
                self.busy, self._is_gone = True, is_gone
                return True
            self._waiting[ticket] = call, is_gone
            heappush(self._order, ticket)
            return False

    def leave(self) -> None:
        """Leave, and let the next caller in."""
        while (call := self._next()) is not None:
            if call():
                return

    def give_up(self, ticket: int) -> None:
        """Stop waiting; a caller that was let in meanwhile lets the next one in."""
        with self._lock:
            if self._waiting.pop(ticket, None) is not None:
                return
        self.leave()

    def _next(self) -> Call | None:
        """Return the call of the next caller, who is inside then; None if the line is empty."""
        with self._lock:
            while self._order:
                waiting = self._waiting.pop(heappop(self._order), None)
                if waiting is not None:
                    call, self._is_gone = waiting
                    return call
            self.busy = False
            return None
