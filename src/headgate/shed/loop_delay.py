"""The delay of the event loop: the time that a request sat in it before it was looked at, and the bound on that.

A handler that computes keeps its event loop, so that only one request is ever in flight, and the others wait where no
counter sees them: among the callbacks of the loop. All requests that are ready are started in one turn of the loop. The
first of a turn notes the time, and a callback that the loop runs after this turn closes it; so a later request of the
turn knows how long the ones before it took, and how many they were.

A request is late after 5 ms (the bound) if the requests before it held the loop for a millisecond each, or longer. If
they were n times quicker, the bound is n times as long, up to 100 ms: many short requests in one turn are many
connections and no overload, and a refusal would take as long as a request.

A loop is behind while each of its turns has late requests. One that has been behind for 100 ms does not catch up by
itself: from then on, requests are refused that sat in the loop longer than the bound of their class.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from headgate.clock import MILLISECOND
from headgate.engine import LoopIteration

if TYPE_CHECKING:
    import asyncio

BOUND = 5 * MILLISECOND
"""How long a request of the lowest class may sit in the event loop; twice that for the next class, and so on."""
LONG = MILLISECOND
"""Requests that hold the loop for less than this each make the bound longer..."""
LONGEST = 20
"""...up to this multiple."""
BEHIND = 100 * MILLISECOND
"""How long a loop has to be behind before requests are refused for it."""
APART = MILLISECOND
"""The time between two turns that are noted. The callback of each turn would cost more than all the rest, and a turn
that began a moment after another one has hardly any requests to miss."""


def in_event_loop() -> bool:
    """Return whether an event loop runs this code."""
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and asyncio._get_running_loop() is not None


class _LoopIterations:
    """The turns of one event loop."""

    __slots__ = ("behind_since", "has_late", "late_at", "turn")

    def __init__(self, loop: asyncio.AbstractEventLoop, now: int) -> None:
        self.turn = LoopIteration(loop, self.close, now - APART, APART)
        """The present turn, or the last."""
        self.has_late = False
        self.behind_since: int | None = None
        self.late_at = now
        """The instant at which the last late request was looked at."""

    def close(self) -> None:
        """End the turn."""
        if not self.has_late:
            self.behind_since = None
        self.turn.open = self.has_late = False

    def is_late(self, now: int, delay: int, multiple: int) -> bool:
        """Return whether to refuse a request that sat in this turn too long."""
        before = self.turn.requests - 1
        quicker = min(LONGEST, max(1.0, LONG * before / delay))
        if delay <= BOUND * quicker:
            return False
        if self.behind_since is None or self.turn.began - self.late_at > BEHIND:  # or it has rested in the meantime
            self.behind_since = now
        self.has_late, self.late_at = True, now
        return before >= multiple and delay > BOUND * quicker * multiple and now - self.behind_since >= BEHIND


class LoopDelay:
    """The event loops of this process."""

    bound = BOUND
    """A delay above this needs a closer look."""

    def __init__(self) -> None:
        self._loops: dict[asyncio.AbstractEventLoop, _LoopIterations] = {}
        self._running: Callable[[], asyncio.AbstractEventLoop | None] | None = None

    def of_request(self, now: int) -> int:
        """Return how long a request that is looked at now waited in its loop; 0 outside of event loops.

        Called only where asyncio is loaded.
        """
        loop = self.running()()
        return 0 if loop is None else self.turn_of(loop, now).delay(now)

    def running(self) -> Callable[[], asyncio.AbstractEventLoop | None]:
        """Return a function that returns the loop that runs its caller. Called only where asyncio is loaded."""
        if self._running is None:
            from asyncio import _get_running_loop  # not above: an app of threads does not load it

            self._running = _get_running_loop
        return self._running

    def turn_of(self, loop: asyncio.AbstractEventLoop, now: int) -> LoopIteration:
        """Return the present turn of a loop."""
        turns = self._loops.get(loop)
        if turns is None:
            turns = self._meet(loop, now)
        return turns.turn

    def is_late(self, now: int, delay: int, multiple: int) -> bool:
        """Return whether to refuse a request that waited in its loop for this long, with the multiple of its class."""
        turns = self._here()
        return turns is not None and turns.is_late(now, delay, multiple)

    def uncount(self) -> None:
        """Do not count the request that was looked at last: it is not served in this turn."""
        turns = self._here()
        if turns is not None:
            turns.turn.requests -= 1

    def _here(self) -> _LoopIterations | None:
        loop = self._running and self._running()
        return self._loops.get(loop) if loop else None

    def _meet(self, loop: asyncio.AbstractEventLoop, now: int) -> _LoopIterations:
        """Return the turns of a loop that was not seen before; forget loops that were closed."""
        for each in list(self._loops):
            if each.is_closed():
                self._loops.pop(each, None)
        return self._loops.setdefault(loop, _LoopIterations(loop, now))
