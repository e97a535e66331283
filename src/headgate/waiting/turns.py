"""Turns: promised instants and the callers that wait for them, matched when an instant comes.

The caller that waits longest leaves at the first instant. A caller that gives up frees the last instant, not its own.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any, Protocol


class Wakeable(Protocol):
    """A waiter that timers wake."""

    def done(self) -> bool:
        """Return whether the waiter need not be woken any more."""
        ...

    def wake(self) -> None:
        """Resume the waiter: its instant has come."""
        ...


class TimerQueue(Protocol):
    """The part of `LoopTimers` that `Turns` uses."""

    loop: asyncio.AbstractEventLoop

    def add(self, at_us: int, waiter: Wakeable) -> int:
        """Wake this waiter at an instant; return the number of its entry."""
        ...

    def drop(self, entry: int) -> None:
        """Forget an entry: its waiter has resumed, or need not be woken."""
        ...


class Instant:
    """A promise, and the instant from which it may be used."""

    __slots__ = ("_turns", "at_us", "entry", "over", "promise")

    def __init__(self, turns: Turns, at_us: int, promise: Any) -> None:  # noqa: ANN401 - any value, passed on
        self._turns, self.at_us, self.promise = turns, at_us, promise
        self.entry = 0
        self.over = False

    def done(self) -> bool:
        """Return whether the instant has come, or was freed."""
        return self.over

    def wake(self) -> None:
        """Call the first caller: the instant has come."""
        self._turns._come(self)


class Turn:
    """A caller that waits."""

    __slots__ = ("called", "instant")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.called: asyncio.Future[None] = loop.create_future()
        self.instant: Instant | None = None


class Turns:
    """The callers that wait for promises of one kind, in one event loop."""

    def __init__(self, timers: TimerQueue, over: Callable[[], object]) -> None:
        self._timers = timers
        self._over = over
        """Called when no caller waits any more."""
        self._instants: deque[Instant] = deque()
        self._waiting: OrderedDict[Turn, None] = OrderedDict()

    def enter(self, at_us: int, promise: Any) -> Turn:  # noqa: ANN401
        """Add a caller, and the promise that it brings for an instant."""
        instant, turn = Instant(self, at_us, promise), Turn(self._timers.loop)
        place = len(self._instants)
        while place and self._instants[place - 1].at_us > at_us:
            place -= 1
        self._instants.insert(place, instant)
        self._waiting[turn] = None
        instant.entry = self._timers.add(at_us, instant)
        return turn

    def taken(self, turn: Turn) -> Any:  # noqa: ANN401
        """Return the promise for a caller whose turn has come and that resumes."""
        assert turn.instant is not None  # noqa: S101 - set by `_call`
        self._timers.drop(turn.instant.entry)
        return turn.instant.promise

    def leave(self, turn: Turn) -> Any:  # noqa: ANN401
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
