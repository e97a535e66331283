"""The entry of requests to a load shedder: a free place is taken, and given back.

A service that is not busy does not measure each request. A request that is not measured, and that need not wait, is a
number in flight and nothing more: no permit is made for it, and natively no function of Python runs.

Like `decision.py`, this file is built twice: the native engine compiles its text as C classes.
"""

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headgate.forks import after_fork

if TYPE_CHECKING:
    from contextvars import ContextVar, Token

_counting = threading.Lock()
"""Held while a place is taken or given back; the native engine has a lock for each shedder instead (setup.py)."""


def _renew_counting() -> None:
    """Replace the lock after a fork, because another thread may have held it during the fork."""
    global _counting
    _counting = threading.Lock()


after_fork(_renew_counting)


class Turn:
    """One turn of an event loop, which starts all requests that are ready."""

    __slots__ = ("apart", "began", "close", "loop", "open", "requests")

    def __init__(self, loop: Any, close: Callable[[], None], began: int, apart: int) -> None:  # noqa: ANN401
        self.loop = loop
        self.close = close
        """Called by the loop after the turn; it sets `open`."""
        self.began = began
        """The time at which the turn began."""
        self.apart = apart
        """The time between two turns that are noted."""
        self.open = False
        self.requests = 0
        """Requests of this turn that are served, the present one included."""

    def delay(self, now: int) -> int:
        """Count a request that is looked at now; return how long the requests before it took."""
        if self.open:
            self.requests += 1
            return now - self.began
        if now - self.began >= self.apart:
            self.open = True
            self.began = now
            self.requests = 1
            self.loop.call_soon(self.close)
        return 0


class Places:
    """The places of a load shedder: how many are taken, and all that a request needs to know that takes one."""

    __slots__ = ("ended", "estimator", "in_flight", "now_ns", "plain", "waiting")

    def __init__(self, estimator: Any, now_ns: Callable[[], int] | None) -> None:  # noqa: ANN401 - of a higher layer
        self.estimator = estimator
        self.now_ns = now_ns
        """The clock; None for a counter of the machine that never steps: a shedder needs durations only."""
        self.plain = False
        """Whether a request needs no more than a free place."""
        self.clear()

    def clear(self) -> None:
        """Start with nothing in flight."""
        self.in_flight = 0
        self.ended = 0
        """Requests that were served."""
        self.waiting = 0
        """Requests that wait for a place."""

    def now(self) -> int:
        """Return the time, in microseconds."""
        if self.now_ns is None:
            return time.monotonic_ns() // 1_000
        return self.now_ns() // 1_000

    def take(self, limit: int) -> int:
        """Take a place if fewer than the limit are taken, and no request waits; return how many are then, or 0."""
        with _counting:
            if self.in_flight >= limit or self.waiting:
                return 0
            self.in_flight += 1
            return self.in_flight

    def take_first(self, limit: int) -> int:
        """Like `take`, ahead of requests that wait."""
        with _counting:
            if self.in_flight >= limit:
                return 0
            self.in_flight += 1
            return self.in_flight

    def give(self, served: bool) -> bool:
        """Give a place back; return whether requests wait for it."""
        with _counting:
            self.ended += served
            if self.in_flight:  # a forked child starts from none, and may end requests of its parent
                self.in_flight -= 1
            return self.waiting > 0

    def wait(self, waiting: int) -> None:
        """Note how many requests wait. A place that is given back after this is known to be waited for."""
        with _counting:
            self.waiting = waiting


class Entry:
    """The entry of requests of one class."""

    __slots__ = ("_bound", "_critical", "_fill", "_meet", "_name", "_places", "_running", "_turn", "_variable")

    def __init__(
        self,
        places: Places,
        name: str,
        critical: bool,
        variable: "ContextVar[str | None]",
        fill: Callable[[], object],
        loops: tuple[Callable[[], Any], Callable[[Any, int], Turn], int],
    ) -> None:
        self._places = places
        self._name = name
        self._critical = critical
        self._variable = variable
        """Shows the class to the code that works for the request."""
        self._fill = fill
        """Lets requests have the places that they wait for."""
        self._running, self._meet, self._bound = loops
        """How to find the loop that runs this code, and its turn; and the delay that needs a closer look."""
        self._turn: Turn | None = None

    def enter(self) -> "Token[str | None] | None":
        """Take a free place, and show the class to the code that runs from here on. None if it takes a permit."""
        places = self._places
        now = places.now()
        estimator = places.estimator
        if not places.plain or now >= estimator.idle_until:
            return None
        loop = self._running()
        turn = self._turn
        if loop is not None:
            if turn is None or turn.loop is not loop:
                self._turn = turn = self._meet(loop, now)
            if turn.delay(now) > self._bound:
                turn.requests -= 1  # the permit counts the request
                return None
        if not places.take(estimator.undipped if self._critical else estimator.limit):
            if loop is not None and turn is not None:
                turn.requests -= 1
            return None
        return self._variable.set(self._name)

    def leave(self, token: "Token[str | None]", served: bool) -> None:
        """Give the place back, for a request that goes on with a permit in its place if it was not served yet."""
        if self._places.give(served):
            self._fill()
        try:  # noqa: SIM105 - `suppress` would cost as much as the rest
            self._variable.reset(token)
        except ValueError:  # in another context, which never saw the class
            pass
