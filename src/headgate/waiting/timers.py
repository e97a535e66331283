"""Wait in an event loop: all waiters share one timer, set for the next of them; promised instants are matched with the
callers that wait for them when an instant comes."""

from __future__ import annotations

import asyncio
import heapq
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from functools import partial
from itertools import count
from typing import Any, Final

from headgate.clock import SECOND, Clock
from headgate.steps import running_loop

LONGEST_TIMER: Final = 86_400.0
MOST_LEFT_BEHIND: Final = 64
"""Waiters that finished early stay in the heap until they are more than this, and more than half of the heap."""


class _Timeout:
    """Sets a future to False at an instant, unless the future has a result before."""

    __slots__ = ("_future", "done")

    def __init__(self, future: asyncio.Future[bool]) -> None:
        self._future, self.done = future, future.done

    def wake(self) -> None:
        self._future.set_result(False)


class LoopTimers:
    """Wakes the waiters of one event loop by one clock, in the order of their instants, then of their arrival.

    The order holds even if the loop is late: a waiter whose instant has passed already waits until the waiters with
    earlier instants have resumed.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self.loop = loop
        self._clock = clock
        self._heap: list[tuple[int, int, _Timeout | Instant]] = []
        self._inside: set[int] = set()
        self._woken: set[int] = set()
        """Entries whose instant has come, but whose waiters have not resumed yet."""
        self._arrivals = count()
        self._timer: asyncio.TimerHandle | None = None
        self._set_for = 0
        self._left = 0
        self._turns: dict[Hashable, PromiseWaiters] = {}
        # A manual clock reports every move.
        self._by_hand = getattr(clock, "watch", None)
        if self._by_hand is not None:
            self._by_hand(self._moved)

    @property
    def timers(self) -> int:
        """The number of timers that are set: at most one."""
        return int(self._timer is not None)

    async def wait_until(self, at_us: int) -> None:
        """Return at the instant or just after it, never before."""
        if self._is_ahead(at_us):
            await self.wait_for(self.loop.create_future(), at_us)

    async def wait_for(self, future: asyncio.Future[bool], at_us: int) -> bool:
        """Return the result of the future, or False at the instant."""
        if not self._is_ahead(at_us):
            return future.done() and future.result()
        entry = self.add(at_us, _Timeout(future))
        try:
            return await future
        finally:
            self.drop(entry)

    def turns(self, kind: Hashable) -> PromiseWaiters:
        """Return the `PromiseWaiters` of this loop for promises of one kind."""
        turns = self._turns.get(kind)
        if turns is None:
            turns = self._turns[kind] = PromiseWaiters(self, partial(self._turns.pop, kind, None))
        return turns

    def add(self, at_us: int, waiter: _Timeout | Instant) -> int:
        """Wake this waiter at an instant; return the number of its entry."""
        entry = next(self._arrivals)
        heapq.heappush(self._heap, (at_us, entry, waiter))
        self._inside.add(entry)
        if at_us > self._clock.now_us():
            self._set()
        else:
            self.loop.call_soon(self.wake_due)  # not now: awaiting a finished future would not yield
        return entry

    def drop(self, entry: int) -> None:
        """Forget an entry: its waiter has resumed, or need not be woken."""
        self._woken.discard(entry)
        if entry in self._inside:
            self._leave()

    def _is_ahead(self, at_us: int) -> bool:
        """Return whether to wait: the instant is ahead, or waiters with earlier instants have not resumed yet."""
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

    def wake_due(self) -> None:
        """Wake every waiter whose instant has come, and set the timer for the next."""
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
        """Count a waiter that finished early; remove such waiters from the heap when they are many."""
        self._left += 1
        if self._left > max(MOST_LEFT_BEHIND, len(self._heap) // 2):
            self._heap = [entry for entry in self._heap if not entry[2].done()]
            self._inside = {entry for _, entry, _ in self._heap}
            heapq.heapify(self._heap)
            self._left = 0
            self._set()

    def _timer_fired(self) -> None:
        self._timer = None
        self.wake_due()

    def _moved(self) -> None:
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.wake_due)


class Timers:
    """The `LoopTimers` of one clock, one for each event loop that uses it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._timers: dict[int, LoopTimers] = {}

    def here(self) -> LoopTimers:
        """Return the timers of the running event loop; raise `NoEventLoop` under another library, such as trio."""
        loop = running_loop()
        timers = self._timers.get(id(loop))
        if timers is None or timers.loop is not loop:
            self._timers = {key: each for key, each in self._timers.items() if not each.loop.is_closed()}
            timers = self._timers[id(loop)] = LoopTimers(loop, self._clock)
        return timers

    async def wait_until(self, at_us: int) -> None:
        """Return at the instant or just after it, never before; one that has come needs no event loop."""
        if at_us > self._clock.now_us() or asyncio._get_running_loop() is not None:
            await self.here().wait_until(at_us)


class Instant:
    """A promise, and the instant from which it may be used."""

    __slots__ = ("_turns", "at_us", "entry", "over", "promise")

    def __init__(self, turns: PromiseWaiters, at_us: int, promise: Any) -> None:  # noqa: ANN401 - any value, passed on
        self._turns, self.at_us, self.promise = turns, at_us, promise
        self.entry = 0
        self.over = False

    def done(self) -> bool:
        """Return whether the instant has come, or was freed."""
        return self.over

    def wake(self) -> None:
        """Call the first caller: the instant has come."""
        self._turns._come(self)


class PromiseWaiter:
    """A caller that waits."""

    __slots__ = ("called", "instant")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.called: asyncio.Future[None] = loop.create_future()
        self.instant: Instant | None = None


class PromiseWaiters:
    """The callers that wait for promises of one kind, in one event loop.

    The caller that waits longest leaves at the first instant. A caller that gives up frees the last instant, not its
    own.
    """

    def __init__(self, timers: LoopTimers, over: Callable[[], object]) -> None:
        self._timers = timers
        self._over = over
        """Called when no caller waits any more."""
        self._instants: deque[Instant] = deque()
        self._waiting: OrderedDict[PromiseWaiter, None] = OrderedDict()

    def enter(self, at_us: int, promise: Any) -> PromiseWaiter:  # noqa: ANN401
        """Add a caller, and the promise that it brings for an instant."""
        instant, turn = Instant(self, at_us, promise), PromiseWaiter(self._timers.loop)
        place = len(self._instants)
        while place and self._instants[place - 1].at_us > at_us:
            place -= 1
        self._instants.insert(place, instant)
        self._waiting[turn] = None
        instant.entry = self._timers.add(at_us, instant)
        return turn

    def taken(self, turn: PromiseWaiter) -> Any:  # noqa: ANN401
        """Return the promise for a caller whose turn has come and that resumes."""
        assert turn.instant is not None  # noqa: S101 - set by `_call`
        self._timers.drop(turn.instant.entry)
        return turn.instant.promise

    def leave(self, turn: PromiseWaiter) -> Any:  # noqa: ANN401
        """Remove a caller that gives up; return the promise that this frees."""
        left = turn.instant
        if left is None:
            del self._waiting[turn]
            left = self._instants.pop()
        elif self._waiting:  # its turn had come: the next caller takes it
            self._call(left)
            left = self._instants.pop()
        left.over = True
        self._timers.drop(left.entry)
        if not self._waiting:
            self._over()
        return left.promise

    def _come(self, instant: Instant) -> None:
        if self._instants[0] is instant:
            self._instants.popleft()
        else:
            self._instants.remove(instant)
        instant.over = True
        self._call(instant)

    def _call(self, instant: Instant) -> None:
        turn, _ = self._waiting.popitem(last=False)
        turn.instant = instant
        if not turn.called.done():  # if it is done, the caller was cancelled and will call `leave`
            turn.called.set_result(None)
        if not self._waiting:
            self._over()
