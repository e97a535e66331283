"""Virtual time: an event loop that leaps from event to event, and clocks that disagree."""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any

from headgate.clock import SECOND


class VirtualLoop:
    """As much of an event loop as tasks need. Time stands still while anything can run, then leaps.

    The order of events follows from their instants and from the order in which they were planned, so a run can be
    repeated.
    """

    def __init__(self) -> None:
        self.now = 0
        self.errors: list[BaseException] = []
        self._later: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._ready: deque[asyncio.Handle] = deque()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._order = count()

    def at(self, when: int, what: Callable[..., None], *args: Any) -> None:
        """The cheap way: nobody can cancel it."""
        heapq.heappush(self._later, (when, next(self._order), what, args))

    def run(self, until: int) -> None:
        """Until that instant, included. The first error ends it."""
        asyncio._set_running_loop(self)
        try:
            self._run_ready()
            while self._later and self._later[0][0] <= until and not self.errors:
                self.now, _, what, args = heapq.heappop(self._later)
                what(*args)
                self._run_ready()
            self.now = until
        finally:
            asyncio._set_running_loop(None)
        if self.errors:
            raise self.errors[0]

    def let_go(self) -> None:
        """End the tasks that nobody will ever answer, and what is planned."""
        self._later.clear()
        asyncio._set_running_loop(self)
        try:
            while self._tasks:
                for task in sorted(self._tasks, key=lambda task: task.get_name()):
                    task.cancel()
                self._run_ready()
        finally:
            asyncio._set_running_loop(None)

    def _run_ready(self) -> None:
        while self._ready:
            self._fire(self._ready.popleft())

    def _fire(self, handle: asyncio.Handle) -> None:
        if not handle.cancelled():
            handle._run()

    def time(self) -> float:
        return self.now / SECOND

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon
    """There are no other threads."""

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> Any:
        handle = asyncio.Handle(callback, args, self, context)
        self.at(self.now + max(0, round(delay * SECOND)), self._fire, handle)
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: Any = None, context: Any = None, **_: Any) -> asyncio.Task[Any]:
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is not None and not isinstance(error, asyncio.CancelledError):
            self.errors.append(error)


class SkewedClock:
    """Began at another time, and runs fast or slow by so many millionths."""

    def __init__(self, loop: VirtualLoop, start: int, ppm: int) -> None:
        self.loop, self._start, self._ppm = loop, start, ppm

    def now_us(self) -> int:
        return self.at(self.loop.now)

    def at(self, real: int) -> int:
        """What it shows at an instant of real time."""
        return self._start + real + real * self._ppm // 1_000_000
