"""A request that waits for a permit: in a thread, or in an event loop."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from headgate.clock import SECOND, Clock
from headgate.steps import running_loop

if TYPE_CHECKING:
    import asyncio

    from headgate.shed.permit import ShedPermit


class SteadyClock:
    """A counter that never steps: a shedder needs durations only."""

    def now_us(self) -> int:
        """Return whole microseconds since some instant."""
        return time.monotonic_ns() // 1_000


class Waiter(Protocol):
    """A request in a waiting room."""

    permit: ShedPermit

    def wake(self) -> None:
        """Let the caller go on: its permit was granted or refused. May be called from any thread."""
        ...


class ThreadWaiter:
    """A caller that blocks its thread."""

    def __init__(self, permit: ShedPermit) -> None:
        self.permit = permit
        self._closed = threading.Lock()
        self._closed.acquire()

    def wake(self) -> None:
        """Let the thread go on."""
        self._closed.release()

    def wait(self, clock: Clock, due: int) -> None:
        """Return when the permit was granted or refused, or at the instant. A manual clock is moved to the instant."""
        move = getattr(clock, "sleep_until", None)
        if move is not None:
            if not self._closed.acquire(blocking=False):
                move(due)
            return
        self._closed.acquire(timeout=min(max(0, due - clock.now_us()) / SECOND, threading.TIMEOUT_MAX))


class LoopWaiter:
    """A caller that awaits in an event loop."""

    def __init__(self, permit: ShedPermit) -> None:
        self.permit = permit
        self._loop = running_loop()
        self.woken: asyncio.Future[bool] = self._loop.create_future()

    def wake(self) -> None:
        """Let the task go on."""
        try:
            self._loop.call_soon_threadsafe(self._set)
        except RuntimeError:  # the loop was closed with the task in it
            self.permit.release("ignored")

    def _set(self) -> None:
        if not self.woken.done():
            self.woken.set_result(True)


def wake_all(waiters: Iterable[Waiter]) -> None:
    """Let these callers go on."""
    for waiter in waiters:
        waiter.wake()
