"""A deadline for the server's time, not for this process's own.

`asyncio.timeout` also fires when the event loop itself was held up, by a busy machine or a slow callback, even
where the answer has arrived meanwhile and only waits to be read. A deadline that notices that it comes late gives the
loop one more moment to read first.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, Self

LATE: Final = 0.005
"""A timer later than this was held up; the moment given is as long."""


class Deadline:
    """`async with Deadline(when):` cancels what runs in it at that time of the loop, and raises TimeoutError."""

    def __init__(self, when: float) -> None:
        self.when = when
        self._excused = self._fired = False

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._timer = self._loop.call_at(self.when, self._fire)
        return self

    def move(self, when: float) -> None:
        """Another time, from now on."""
        if when != self.when:
            self._timer.cancel()
            self.when = when
            self._timer = self._loop.call_at(when, self._fire)

    def _fire(self) -> None:
        if self._loop.time() - self.when > LATE and not self._excused:
            self._excused = True
            self._timer = self._loop.call_later(LATE, self._fire)
        elif self._task is not None:
            self._fired = True
            self._task.cancel()

    async def __aexit__(self, kind: type[BaseException] | None, *_: Any) -> None:  # noqa: ANN401
        self._timer.cancel()
        if self._fired and self._task is not None and self._task.uncancel() == 0 and kind is asyncio.CancelledError:
            raise TimeoutError("no answer within the deadline") from None
