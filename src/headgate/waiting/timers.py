"""Waiting in an event loop: however many wait, there is one timer, set for whoever is next."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Hashable
from functools import partial
from itertools import count
from typing import Final

from headgate.clock import SECOND, Clock
from headgate.waiting.turns import Turns, Wakeable

LONGEST_TIMER: Final = 86_400.0
MOST_LEFT_BEHIND: Final = 64
"""Waiters who went early and are kept until their time comes, unless they are also the most of all."""


class _Timeout:
    """A future that is False at an instant, unless it has a result before."""

    __slots__ = ("_future", "done")

    def __init__(self, future: asyncio.Future[bool]) -> None:
        self._future, self.done = future, future.done

    def wake(self) -> None:
        self._future.set_result(False)


class LoopTimers:
    """Wakes the waiters of one event loop by one clock, in the order of their instants, then of their arrival.

    The order holds however late the loop is: an instant that has come already is waited for behind those that came
    before it and have not gone on yet.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self.loop = loop
        self._clock = clock
        self._heap: list[tuple[int, int, Wakeable]] = []
        self._inside: set[int] = set()
        self._woken: set[int] = set()
        """Whose instant has come, and who have not had their turn in the loop since."""
        self._arrivals = count()
        self._timer: asyncio.TimerHandle | None = None
        self._set_for = 0
        self._left = 0
        self._turns: dict[Hashable, Turns] = {}
        # A clock that is moved by hand tells when it was.
        self._by_hand = getattr(clock, "watch", None)
        if self._by_hand is not None:
            self._by_hand(self._moved)

    @property
    def timers(self) -> int:
        """How many timers are set: at most one."""
        return int(self._timer is not None)

    async def wait_until(self, at_us: int) -> None:
        """Return at the instant or just after it, never before."""
        if self._is_ahead(at_us):
            await self.wait_for(self.loop.create_future(), at_us)

    async def wait_for(self, future: asyncio.Future[bool], at_us: int) -> bool:
        """The future's own result, or False at the instant."""
        if not self._is_ahead(at_us):
            return future.done() and future.result()
        entry = self.add(at_us, _Timeout(future))
        try:
            return await future
        finally:
            self.drop(entry)

    def turns(self, kind: Hashable) -> Turns:
        """Those who wait here for promises of one kind."""
        turns = self._turns.get(kind)
        if turns is None:
            turns = self._turns[kind] = Turns(self, partial(self._turns.pop, kind, None))
        return turns

    def add(self, at_us: int, waiter: Wakeable) -> int:
        """Wake somebody at an instant; the number of the entry."""
        entry = next(self._arrivals)
        heapq.heappush(self._heap, (at_us, entry, waiter))
        self._inside.add(entry)
        if at_us > self._clock.now_us():
            self._set()
        else:
            self.loop.call_soon(self._wake_due)  # not now: a future that has its result is not waited for
        return entry

    def drop(self, entry: int) -> None:
        """It was woken and goes on, or need not be woken."""
        self._woken.discard(entry)
        if entry in self._inside:
            self._leave()

    def _is_ahead(self, at_us: int) -> bool:
        """Whether there is something to wait for: the instant, or those whose instant was before it."""
        return bool(self._woken) or at_us > self._clock.now_us() or bool(self._heap and self._heap[0][0] <= at_us)

    def _set(self) -> None:
        """Set the timer for the first waiter."""
        first = self._heap[0][0] if self._heap else 0
        if self._by_hand is not None or (self._timer is not None and first == self._set_for):
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._heap:
            self._set_for = first
            left = max(0, first - self._clock.now_us())
            self._timer = self.loop.call_later(min(left / SECOND, LONGEST_TIMER), self._timer_fired)

    def _wake_due(self) -> None:
        """Wake everybody whose instant has come, and set the timer for the next."""
        now = self._clock.now_us()
        while self._heap and self._heap[0][0] <= now:
            _, entry, waiter = heapq.heappop(self._heap)
            self._inside.discard(entry)
            if not waiter.done():
                self._woken.add(entry)
                waiter.wake()
            else:
                self._left = max(0, self._left - 1)
        self._set()

    def _leave(self) -> None:
        """Somebody went early: forget those who did when they are many, so that memory stays bounded."""
        self._left += 1
        if self._left > max(MOST_LEFT_BEHIND, len(self._heap) // 2):
            self._heap = [entry for entry in self._heap if not entry[2].done()]
            self._inside = {entry for _, entry, _ in self._heap}
            heapq.heapify(self._heap)
            self._left = 0
            self._set()

    def _timer_fired(self) -> None:
        self._timer = None
        self._wake_due()

    def _moved(self) -> None:
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self._wake_due)


class Timers:
    """The timers of one clock, one for each event loop that waits by it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._timers: dict[int, LoopTimers] = {}

    def here(self) -> LoopTimers:
        """The timers of the running event loop."""
        loop = asyncio.get_running_loop()
        timers = self._timers.get(id(loop))
        if timers is None or timers.loop is not loop:
            self._timers = {key: each for key, each in self._timers.items() if not each.loop.is_closed()}
            timers = self._timers[id(loop)] = LoopTimers(loop, self._clock)
        return timers
