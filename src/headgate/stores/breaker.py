"""A circuit breaker for a server that mostly fails, and a thread that probes the servers that are away."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from headgate.clock import SECOND, SystemClock
from headgate.wording import log_of

FIRST_PROBE: Final = 0.05
LONGEST_PROBE: Final = 0.5
WINDOW_US: Final = 10 * SECOND
"""Failures further apart, from the end of one to the beginning of the next, are not counted together."""
FEWEST: Final = 3
"""The fewest failures that open the breaker."""
RATIO: Final = 0.5
"""The part of the requests since the first failure that must have failed, for the breaker to open."""
MADE_GOOD: Final = 10
"""After this number of successes in a row, earlier failures no longer count."""
NO_THREAD: Final = "no thread can be started to probe it, so decisions ask it again"
"""Why a breaker closes although the server is away: without a thread, nobody would ever find the server back."""

log = log_of("headgate")
_chance = random.Random()  # noqa: S311 - not the program's own generator, which it may have seeded


class Transition(NamedTuple):
    """A server went away, or came back."""

    server: str
    available: bool
    reason: str


class Breaker:
    """Closed while the server answers; open after it has mostly failed, until a probe has passed.

    Nothing is counted while the server is well: a failure opens a window, and successes are counted only in a window.
    """

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._lock = threading.Lock()
        self.open = False
        self.troubled = False
        """Whether a window is open, in which successes must be reported too."""
        self._last = self._failures = self._successes = self._in_a_row = 0

    def failed(self, spent: float = 0.0) -> bool:
        """Count a failure that took `spent` seconds. True if this failure opened the breaker."""
        with self._lock:
            now = self._clock.now_us()
            return self._count_failure(now - round(spent * SECOND), now)

    def _count_failure(self, began: int, now: int) -> bool:
        # The time spent in a failure does not count: failures that take longer than the window must still add up.
        if not self.troubled or began - self._last > WINDOW_US:
            self._failures = self._successes = 0
            self.troubled = True
        self._last = now
        self._failures += 1
        self._in_a_row = 0
        opens = (
            not self.open
            and self._failures >= FEWEST
            and self._failures >= RATIO * (self._failures + self._successes)
        )  # fmt: skip
        self.open = self.open or opens
        return opens

    def succeeded(self) -> None:
        """Count a success while a window is open."""
        with self._lock:
            self._successes += 1
            self._in_a_row += 1
            if self._in_a_row >= MADE_GOOD and not self.open:
                self.troubled = False

    def close(self) -> None:
        """Close the breaker after a probe has passed."""
        self.open = self.troubled = False


class Prober:
    """Notes failures of servers. While one is away, a thread probes it, so no request has to wait for the probes.

    A server has a `name`, a `breaker` and `hang_up`. `probe` returns the reason why a server is no longer away, or
    raises one of the `failures`.
    """

    def __init__(
        self,
        servers: Callable[[], Iterable[Any]],
        probe: Callable[[Any], str],
        failures: tuple[type[BaseException], ...],
        hook: Callable[[Transition], None] | None,
    ) -> None:
        self._servers = servers
        self._probe = probe
        self._failures = failures
        self._hook = hook
        self._told = False
        self.forget()

    def forget(self) -> None:
        """Start again after a fork, without the lock and the thread of the parent."""
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()
        self._lock = threading.Lock()

    def close(self) -> None:
        """Stop probing."""
        self._closed.set()

    def failed(self, server: Any, error: BaseException, began: float | None = None) -> None:  # noqa: ANN401
        """Note that the server did not answer, or replied with an error, to a command that began at `began`."""
        if not self._told and "timeout" in type(error).__name__.lower():
            self._told = True
            log.warning(
                "%s gave no answer within the deadline, so this answer is degraded. If the way to it is just slow, "
                "write a longer one into the URL, as in ?deadline=0.5",
                server.name,
            )
        if server.breaker.failed(0.0 if began is None else time.monotonic() - began):
            self._tell(Transition(server.name, False, f"{type(error).__name__}: {error}"))
            server.hang_up()
            if not self._probes():
                server.breaker.close()
                self._tell(Transition(server.name, True, NO_THREAD))

    def _probes(self) -> bool:
        """Return whether a thread probes; False if none can be started, as where the system has no room for one."""
        with self._lock:
            if self._closed.is_set():  # the store is in use again, and its old thread is ending
                self._closed, self._thread = threading.Event(), None
            if self._thread is None:
                thread = threading.Thread(target=self._ask_again, name="headgate-probe", daemon=True)
                try:
                    thread.start()
                except RuntimeError:
                    return False
                self._thread = thread
            return True

    def _ask_again(self) -> None:
        """Probe until all servers are back: soon at first, then less often, at random times in each process."""
        pause, closed = FIRST_PROBE, self._closed
        while away := self._away():
            if closed.wait(pause * _chance.uniform(0.5, 1.0)):
                return
            pause = min(pause * 1.5, LONGEST_PROBE)
            for server in away:
                try:
                    reason = self._probe(server)
                except self._failures:
                    continue
                except Exception:
                    log.exception("probing %s failed", server.name)
                    continue
                if closed.is_set():
                    server.hang_up()
                    return
                server.breaker.close()
                self._tell(Transition(server.name, True, reason))

    def _away(self) -> list[Any]:
        """Return the servers that are away; if there are none, the calling thread stops probing."""
        with self._lock:
            away = [server for server in list(self._servers()) if server.breaker.open]
            if not away and self._thread is threading.current_thread():
                self._thread = None
            return away

    def _tell(self, transition: Transition) -> None:
        level = logging.WARNING if not transition.available else logging.INFO
        log.log(level, "%s is %s: %s", transition.server, "back" if transition.available else "away", transition.reason)
        if self._hook is not None:
            try:
                self._hook(transition)
            except Exception:
                log.exception("the on_transition hook failed")
