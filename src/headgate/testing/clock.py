"""A clock that a test moves."""

from __future__ import annotations

from collections.abc import Callable
from weakref import WeakMethod

from headgate.algorithms import EXACT
from headgate.clock import SECOND
from headgate.errors import InvalidCall
from headgate.wording import shown


class ManualClock:
    """A clock that starts at 0 (1970-01-01 UTC, the start of a window) and moves only by `advance` or `set`.

    Examples:
        >>> clock = ManualClock()
        >>> clock.advance(1.5)
        >>> clock.now()
        1.5
    """

    def __init__(self, start: float = 0.0) -> None:
        self._watchers: list[WeakMethod[Callable[[], None]]] = []
        self.us = 0
        self.set(start)

    def now_us(self) -> int:
        """Return whole microseconds since the UTC epoch."""
        return self.us

    def now(self) -> float:
        """Return seconds since the UTC epoch."""
        return self.us / SECOND

    def advance(self, seconds: float) -> None:
        """Move the clock by `seconds`, rounded to a microsecond; a negative number steps back."""
        self._move_to(self.us + _microseconds(seconds))

    def set(self, seconds: float) -> None:
        """Move the clock to an instant, in seconds since the UTC epoch."""
        self._move_to(_microseconds(seconds))

    def _move_to(self, us: int) -> None:
        if not 0 <= us < EXACT:
            raise InvalidCall(f"a clock must be at 0 to 2**53 microseconds since the epoch; got {us}")
        self.us = us
        self._watchers = [watcher for watcher in self._watchers if watcher() is not None]
        for watcher in self._watchers:
            told = watcher()
            if told is not None:
                told()

    def sleep_until(self, at_us: int) -> None:
        """Move the clock to the instant: a thread that waits by this clock returns at once."""
        if at_us > self.us:
            self._move_to(at_us)

    def watch(self, told: Callable[[], None]) -> None:
        """Call this bound method after every move, as long as its object lives."""
        self._watchers.append(WeakMethod(told))

    def __repr__(self) -> str:
        return f"ManualClock({self.now()})"


def _microseconds(seconds: float) -> int:
    try:
        return round(seconds * SECOND)
    except (TypeError, ValueError, OverflowError):
        raise InvalidCall(f"a clock is moved by a finite number of seconds; got {shown(seconds)}") from None
