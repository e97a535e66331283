"""A deadline that limits the server's time, not this process's own.

`asyncio.timeout` also fires when a busy machine, a slow callback or a computing thread has delayed the event loop
itself, even if the answer has arrived and only has to be read. This deadline lets the loop read once more before it
fires, and for longer if its timer was late, which shows that the loop was delayed.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, Self

LOOK: Final = 0.001
"""Seconds to read once more."""
LATE: Final = 0.005
"""A timer that is late by more seconds was delayed; the loop then gets this time to read once more."""

MANY_TURNS: Final = 20
"""More turns of the loop than a connection takes, with a name lookup, a sentinel, TLS and a password."""


class Deadline:
    """`async with Deadline(when):` cancels its block at that time of the loop, and raises TimeoutError.

    `turns` is how often a late timer is extended: work that takes several turns of the loop needs several.
    """

    def __init__(self, when: float, turns: int = 1) -> None:
        self.when = when
        self._turns = turns
        self._looks = 0
        self._fired = False

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._timer = self._loop.call_at(self.when, self._fire, self.when)
        return self

    def move(self, when: float) -> None:
        """Change the time."""
        if when != self.when:
            self._timer.cancel()
            self.when = when
            self._looks = 0
            self._timer = self._loop.call_at(when, self._fire, when)

    def _fire(self, planned: float) -> None:
        now = self._loop.time()
        late = now - planned > LATE
        if self._looks == 0 or (late and self._looks < self._turns):
            self._looks += 1
            again = now + (LATE if late else LOOK)
            self._timer = self._loop.call_at(again, self._fire, again)
        elif self._task is not None:
            self._fired = True
            self._task.cancel()

    async def __aexit__(self, kind: type[BaseException] | None, *_: Any) -> None:  # noqa: ANN401
        self._timer.cancel()
        if self._fired and self._task is not None and self._task.uncancel() == 0 and kind is asyncio.CancelledError:
            raise TimeoutError("no answer within the deadline") from None
