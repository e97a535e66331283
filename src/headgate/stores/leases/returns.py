"""The thread of a process that gives back what was leased and not spent, for every limiter that leases in threads.

It starts with the first lease and ends when there is nothing to give back any more. Nobody waits for it: it is a
daemon, and what a process holds when it ends without `close()` is lost, as after a crash.
"""

from __future__ import annotations

import threading
import weakref
from contextlib import suppress
from typing import Final, Protocol

from headgate.forks import after_fork
from headgate.wording import log_of

MOMENT: Final = 0.05
"""Seconds between two times at which leases are given back: those that end together go back together."""
LINGER: Final = 5.0
"""Seconds without a lease after which the thread ends."""

log: Final = log_of("headgate")


class Holder(Protocol):
    """A gate that leases."""

    def next_return(self) -> float | None:
        """Seconds until something is to be given back; None if nothing is held."""
        ...

    def return_due(self) -> None:
        """Give back what has run out."""
        ...


class Returns:
    """Looks after the leases of gates."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """After a fork: thread, locks and leases are the parent's."""
        self._gates: weakref.WeakSet[Holder] = weakref.WeakSet()
        self._changed = threading.Condition(threading.Lock())
        self._thread: threading.Thread | None = None

    def look_after(self, gate: Holder) -> None:
        """This gate has a lease."""
        with self._changed:
            self._gates.add(gate)
            if self._thread is not None:
                self._changed.notify()
                return
            thread = threading.Thread(target=self._work, name="headgate-leases", daemon=True)
            with suppress(RuntimeError):  # the interpreter is about to end, or has no room for a thread
                thread.start()
                self._thread = thread

    def leave(self, gate: Holder) -> None:
        """This gate has given back everything."""
        with self._changed:
            self._gates.discard(gate)
            self._changed.notify()

    def _work(self) -> None:
        while True:
            due = self._wait()
            if due is None:
                return
            while due:  # and a limiter that nobody else knows is not kept alive
                try:
                    due.pop().return_due()
                except Exception:
                    log.exception("unused tokens were not given back, which is tried again")

    def _wait(self) -> list[Holder] | None:
        """The gates that have something to give back, when they have; None when the thread is to end."""
        with self._changed:
            pause = min(self._pauses().values(), default=None)
            self._changed.wait(LINGER if pause is None else max(MOMENT, pause))
            if not self._gates:
                self._thread = None
                return None
            return [gate for gate, pause in self._pauses().items() if pause <= 0]

    def _pauses(self) -> dict[Holder, float]:
        """Seconds until each gate has something to give back; those that hold nothing are let go."""
        pauses = {}
        for gate in list(self._gates):
            pause = gate.next_return()
            if pause is None:
                self._gates.discard(gate)
            else:
                pauses[gate] = pause
        return pauses


returns: Final = Returns()
after_fork(returns.forget)
