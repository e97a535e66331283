"""The entry of requests to a load shedder: a free place is taken, and given back.

A service that is not busy does not measure each request. A request that is not measured, and that need not wait, is a
number in flight and nothing more: no permit is made for it, and natively no function of Python runs.

Like `decision.py`, this file is built twice: the native engine compiles its text as C classes.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from sys import modules
from threading import get_ident
from typing import TYPE_CHECKING, Any

from headgate.forks import after_fork

if TYPE_CHECKING:
    from contextvars import ContextVar, Token

    from headgate.engine.entry_permit import EntryPermit
    from headgate.permit import Outcome

_counting = threading.Lock()
"""Held while a place is taken or given back; the native engine has a lock for each shedder instead (setup.py)."""


def _renew_counting() -> None:
    """Replace the lock after a fork, because another thread may have held it during the fork."""
    global _counting
    _counting = threading.Lock()


after_fork(_renew_counting)


class LoopIteration:
    """One iteration of an event loop, or turn: it starts all requests that are ready."""

    __slots__ = ("apart", "began", "close", "loop", "open", "requests", "thread")

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
        self.thread = get_ident()

    def is_here(self, now: int) -> bool:
        """Whether this code is of the turn, or in a moment that no turn notes; found without a look at the loop."""
        return self.thread == get_ident() and (self.open or now - self.began < self.apart)

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

    __slots__ = ("abandoned", "ended", "estimator", "in_flight", "now_ns", "plain", "waiting")

    def __init__(self, estimator: Any, now_ns: Callable[[], int] | None) -> None:  # noqa: ANN401 - of a higher layer
        self.estimator = estimator
        self.now_ns = now_ns
        """The clock; None for a counter of the machine that never steps: a shedder needs durations only."""
        self.plain = False
        """Whether a request needs no more than a free place."""
        self.in_flight = 0
        self.ended = 0
        """Requests that were served."""
        self.waiting = 0
        """Requests that wait for a place."""
        self.abandoned: deque[Any] = deque()
        """The marks of permits that were lost: a collector may find them at any time, even under a lock."""

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
            self.in_flight -= 1
            return self.waiting > 0

    def end(self, permit: "EntryPermit", outcome: "Outcome") -> bool:
        """End a permit, and give its place back. False if it was not held: it had ended already, for instance."""
        with _counting:
            if permit.state != "held":
                return False
            permit.state = "ended"
            permit.outcome = outcome
            self.ended += 1
            self.in_flight -= 1
            return True

    def wait(self, waiting: int) -> None:
        """Note how many requests wait. A place that is given back after this is known to be waited for."""
        with _counting:
            self.waiting = waiting


class Entry:
    """The entry of requests of one class."""

    __slots__ = (
        "_bound",
        "_critical",
        "_loops",
        "_running",
        "_turn",
        "below",
        "name",
        "places",
        "rank",
        "shedder",
        "variable",
    )

    def __init__(
        self,
        places: Places,
        name: str,
        ranks: tuple[int, int],
        critical: bool,
        variable: "ContextVar[str | None]",
        shedder: Any,  # noqa: ANN401 - of a higher layer
        loops: Any,  # noqa: ANN401 - of a higher layer
    ) -> None:
        self.places = places
        self.name = name
        """The class."""
        self.rank, self.below = ranks
        """How many classes are more important, and how many less."""
        self._critical = critical
        self.variable = variable
        """Shows the class to the code that works for the request."""
        self.shedder = shedder
        self._loops = loops
        """Knows the turns of each event loop..."""
        self._bound: int = loops.bound
        """...and the delay in it that needs a closer look."""
        self._running: Callable[[], Any] | None = None
        """Returns the loop that runs this code; None until the app has loaded asyncio."""
        self._turn: LoopIteration | None = None

    def enter(self) -> "Token[str | None] | None":
        """Take a free place, and show the class to the code that runs from here on. None if it takes a permit."""
        places = self.places
        now = places.now()
        if not places.plain or now >= places.estimator.idle_until or not self._take(now):
            return None
        return self.variable.set(self.name)

    def leave(self, token: "Token[str | None]", served: bool) -> None:
        """Give the place back. `served` is false for a request that has no answer yet: it asks again, for a permit."""
        if self.places.give(served):
            self.shedder.fill()
        try:  # noqa: SIM105 - `suppress` would cost as much as the rest
            self.variable.reset(token)
        except ValueError:  # in another context, which never saw the class
            pass

    def grant(self, permit: "EntryPermit") -> bool:
        """Take a free place for a permit. False if the shedder has to look closer, or no place is free."""
        places = self.places
        if not places.plain:
            return False
        now = places.now()
        in_flight = self._take(now)
        if not in_flight:
            return False
        permit.state = "held"
        permit.began = now
        if now >= places.estimator.idle_until:
            self.shedder.measure(permit, in_flight)
        return True

    def _take(self, now: int) -> int:
        """Take a free place for a request that did not sit in its loop too long; return how many are taken, or 0."""
        turn = self._turn
        if turn is None or not turn.is_here(now):
            turn = self._find_turn(now)
        if turn is not None and turn.delay(now) > self._bound:
            turn.requests -= 1  # the shedder counts the request when it looks closer
            self._turn = None  # the loop of an old turn may have stopped
            return 0
        estimator = self.places.estimator
        in_flight = self.places.take(estimator.undipped if self._critical else estimator.limit)
        if not in_flight and turn is not None:
            turn.requests -= 1
        return in_flight

    def _find_turn(self, now: int) -> LoopIteration | None:
        """Return the turn of the loop that runs this code, or None outside of event loops."""
        if self._running is None and "asyncio" in modules:
            self._running = self._loops.running()
        loop = None if self._running is None else self._running()
        if loop is None:
            self._turn = None
        elif self._turn is None or self._turn.loop is not loop:
            self._turn = self._loops.turn_of(loop, now)
        return self._turn
