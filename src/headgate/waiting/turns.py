"""Turns: instants that were promised, and those who wait for them, matched when an instant comes.

Whoever waits first leaves at the first instant. One that gives up leaves the last instant over, not its own.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any, Protocol


class Wakeable(Protocol):
    """Whom an timers wakes."""

    def done(self) -> bool:
        """Nobody is to be woken any more."""
        ...

    def wake(self) -> None:
        """The instant has come."""
        ...


class TimerQueue(Protocol):
    """What turns need of an timers."""

    loop: asyncio.AbstractEventLoop

    def add(self, at_us: int, waiter: Wakeable) -> int:
        """Wake somebody at an instant; the number of the entry."""
        ...

    def drop(self, entry: int) -> None:
        """It was woken and goes on, or need not be woken."""
        ...


class Instant:
    """A promise of something at an instant."""

    __slots__ = ("_turns", "at_us", "entry", "over", "promise")

    def __init__(self, turns: Turns, at_us: int, promise: Any) -> None:  # noqa: ANN401 - handed on as it is
        self._turns, self.at_us, self.promise = turns, at_us, promise
        self.entry = 0
        self.over = False

    def done(self) -> bool:
        """It has come, or was left over."""
        return self.over

    def wake(self) -> None:
        """It is somebody's turn."""
        self._turns._come(self)


class Turn:
    """Somebody who waits."""

    __slots__ = ("called", "instant")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.called: asyncio.Future[None] = loop.create_future()
        self.instant: Instant | None = None


class Turns:
    """Those who wait for promises of one kind, in one event loop."""

    def __init__(self, timers: TimerQueue, over: Callable[[], object]) -> None:
        self._timers = timers
        self._over = over
        """Called when nobody waits any more."""
        self._instants: deque[Instant] = deque()
        self._waiting: OrderedDict[Turn, None] = OrderedDict()

    def enter(self, at_us: int, promise: Any) -> Turn:  # noqa: ANN401
        """Wait, with a promise for an instant."""
        instant, turn = Instant(self, at_us, promise), Turn(self._timers.loop)
        place = len(self._instants)
        while place and self._instants[place - 1].at_us > at_us:
            place -= 1
        self._instants.insert(place, instant)
        self._waiting[turn] = None
        instant.entry = self._timers.add(at_us, instant)
        return turn

    def taken(self, turn: Turn) -> Any:  # noqa: ANN401
        """The promise of somebody whose turn has come, and who goes on."""
        assert turn.instant is not None  # noqa: S101 - called
        self._timers.drop(turn.instant.entry)
        return turn.instant.promise

    def leave(self, turn: Turn) -> Any:  # noqa: ANN401
        """Somebody gives up: the promise that is left over."""
        left = turn.instant
        if left is None:
            del self._waiting[turn]
            left = self._instants.pop()
        elif self._waiting:  # called a moment ago: the next one goes instead
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
        if not turn.called.done():  # cancelled, it will leave
            turn.called.set_result(None)
        if not self._waiting:
            self._over()
