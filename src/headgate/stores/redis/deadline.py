"""A deadline for the server's time, not for this process's own.

`asyncio.timeout` also fires when the event loop itself was held up, by a busy machine, a slow callback or threads that
compute, even where the answer has arrived meanwhile and only waits to be read. This one lets the loop look once more
before it fires, and for longer where it comes late, which shows that the loop was held up.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, Self

LOOK: Final = 0.001
"""Seconds given to look once more."""
LATE: Final = 0.005
"""A timer later than this was held up; the moment given then is as long."""

MANY_TURNS: Final = 20
"""More than connecting takes, with a name to look up, a sentinel to ask, TLS and a password."""


class Deadline:
    """`async with Deadline(when):` cancels what runs in it at that time of the loop, and raises TimeoutError.

    `turns` is how often a loop that is held up is forgiven: what takes several turns of the loop needs several.
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
        """Another time, from now on."""
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
