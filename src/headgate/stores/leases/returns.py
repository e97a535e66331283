"""The thread that gives back unused tokens, one for all limiters of a process that lease in threads.

It starts with the first lease and ends when there is nothing left to give back. It is a daemon, so the process does
not wait for it: the tokens of a process that ends without `close()` are lost, as after a crash.
"""

from __future__ import annotations

import threading
import weakref
from contextlib import suppress
from typing import Final, Protocol

from headgate.forks import after_fork
from headgate.wording import log_of

MOMENT: Final = 0.05
"""The shortest pause, in seconds, between two returns: leases that end together are returned together."""
LINGER: Final = 5.0
"""Seconds without a lease after which the thread ends."""

log: Final = log_of("headgate")


class Leasing(Protocol):
    """Bound limits that lease tokens."""

    def next_return(self) -> float | None:
        """Return the seconds until tokens must be given back; None if there are none."""
        ...

    def return_due(self) -> None:
        """Give back the unused tokens of leases that have ended."""
        ...


class Returns:
    """The bound limits that lease, and the thread that gives back their unused tokens."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Start again after a fork: thread, locks and leases are the parent's."""
        self._leasing: weakref.WeakSet[Leasing] = weakref.WeakSet()
        self._changed = threading.Condition(threading.Lock())
        self._thread: threading.Thread | None = None

    def look_after(self, limits: Leasing) -> None:
        """Add bound limits that have a lease."""
        with self._changed:
            self._leasing.add(limits)
            if self._thread is not None:
                self._changed.notify()
                return
            thread = threading.Thread(target=self._work, name="headgate-leases", daemon=True)
            with suppress(RuntimeError):  # the interpreter is about to end, or has no room for a thread
                thread.start()
                self._thread = thread

    def leave(self, limits: Leasing) -> None:
        """Remove bound limits that have given back everything."""
        with self._changed:
            self._leasing.discard(limits)
            self._changed.notify()

    def _work(self) -> None:
        while True:
            due = self._wait()
            if due is None:
                return
            while due:  # `pop` drops the reference, which would keep a limiter alive
                try:
                    due.pop().return_due()
                except Exception:
                    log.exception("unused tokens were not given back; the next attempt follows")

    def _wait(self) -> list[Leasing] | None:
        """Wait, then return the limits that have tokens to give back; None if the thread should end."""
        with self._changed:
            pause = min(self._pauses().values(), default=None)
            self._changed.wait(LINGER if pause is None else max(MOMENT, pause))
            if not self._leasing:
                self._thread = None
                return None
            return [limits for limits, pause in self._pauses().items() if pause <= 0]

    def _pauses(self) -> dict[Leasing, float]:
        """Return the seconds until limits have tokens to give back; remove limits that have no lease."""
        pauses = {}
        for limits in list(self._leasing):
            pause = limits.next_return()
            if pause is None:
                self._leasing.discard(limits)
            else:
                pauses[limits] = pause
        return pauses


returns: Final = Returns()
after_fork(returns.forget)
