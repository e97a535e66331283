"""How long a request sat in the event loop before it was looked at.

A handler that computes keeps its event loop, so that only one request is ever in flight, and the others wait where no
counter sees them: among the callbacks of the loop. All requests that are ready are started in one turn of the loop. The
first of a turn notes the time, and a callback that the loop runs after this turn forgets it; so a later request of the
turn knows how long the ones before it took.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio


def in_event_loop() -> bool:
    """Return whether an event loop runs this code."""
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and asyncio._get_running_loop() is not None


class LoopDelay:
    """The turns of the event loops of this process."""

    def __init__(self) -> None:
        self._turns: dict[int, tuple[asyncio.AbstractEventLoop, int]] = {}
        """The loop by its id, and the time at which its turn began."""
        self._running: Callable[[], asyncio.AbstractEventLoop | None] | None = None

    def of_request(self, now: int) -> int:
        """Return how long a request that is looked at now waited in its loop; 0 outside of event loops."""
        if self._running is None:
            if "asyncio" not in sys.modules:
                return 0
            from asyncio import _get_running_loop

            self._running = _get_running_loop
        loop = self._running()
        if loop is None:
            return 0
        turn = self._turns.get(id(loop))
        if turn is not None and turn[0] is loop:
            return now - turn[1]
        self._turns[id(loop)] = (loop, now)
        loop.call_soon(self._turns.pop, id(loop), None)
        return 0
