"""The supervisor: starts worker processes, replaces those that die, renews all without a gap, and ends them.

A worker is a function that is run in a new process (spawned, not forked). It calls `ready` when it can serve, and
SIGTERM tells it to finish its requests and return.
"""

from __future__ import annotations

import multiprocessing
import signal
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import wait
from typing import Any, Final, NamedTuple

from headgate.edge.worker import Ready, run_worker
from headgate.errors import StoreError
from headgate.wording import log_of

DRAIN: Final = 15.0
"""Seconds that a worker may take to finish its requests; then it is killed."""
MOST_FAILURES: Final = 5
"""The number of times in a row that a worker may die young before the whole service ends."""
YOUNG: Final = 5.0
"""A worker that serves for fewer seconds counts as failed; its successor waits a little longer each time."""
FIRST_PAUSE: Final = 0.1
EVERY: Final = 1.0
"""Seconds between two looks at files."""
ENDING: Final = (signal.SIGTERM, signal.SIGINT)

log = log_of("headgate.edge")


class Worker(NamedTuple):
    """A function to run in a process of its own, and its name in messages."""

    name: str
    run: Callable[[Ready], None]
    """Must be picklable; returns after SIGTERM, when its requests are finished."""


class Running:
    """One process of a worker."""

    def __init__(self, worker: Worker) -> None:
        spawning = multiprocessing.get_context("spawn")
        self.pipe, theirs = spawning.Pipe()
        self.process: Any = spawning.Process(target=run_worker, args=(worker, theirs), name=worker.name, daemon=False)
        self.process.start()
        theirs.close()
        self.since: float | None = None
        """The instant at which it began to serve: the time of a start says nothing about the life of a worker."""
        self.is_ready = False
        self.ends_by: float | None = None
        """The instant at which it is killed, if it was told to end."""

    def end(self) -> None:
        """Tell the process to finish its requests; kill it if it was told before, and its time is over."""
        if self.ends_by is None:
            self.ends_by = time.monotonic() + DRAIN
            self.process.terminate()
        elif time.monotonic() >= self.ends_by:
            self.process.kill()

    def close(self) -> None:
        """Forget a process that has ended."""
        self.process.join()
        self.process.close()
        self.pipe.close()


class Slot:
    """The slot of a worker: the process that serves in it now, and the one that comes next."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.serving: Running | None = None
        self.coming: Running | None = None
        self.failures = 0
        self.starts_at = 0.0
        """The instant from which the next process may be started."""


class Supervisor:
    """Runs workers until SIGTERM or SIGINT. SIGHUP renews them one after the other."""

    def __init__(
        self, workers: Sequence[Worker], on_ready: Callable[[], None], looks: Sequence[Callable[[], None]] = ()
    ) -> None:
        self._looks = looks
        """Called about once a second: they look after files."""
        self._slots = [Slot(worker) for worker in workers]
        self._on_ready: Callable[[], None] | None = on_ready
        self._leaving: list[Running] = []
        """Processes that finish their last requests."""
        self._to_renew: deque[Slot] = deque()
        self._signals: list[int] = []
        self._ends = False

    def run(self) -> None:
        """Serve until a signal ends it; raise `StoreError` if workers die again and again."""
        with self._told_by_signals() as woken:
            try:
                while not self._ends or self._every():
                    self._step(woken)
            finally:
                for each in self._every():
                    each.process.kill()
                    each.close()

    def _step(self, woken: socket.socket) -> None:
        with suppress(BlockingIOError):  # first, so that a later signal ends the wait below
            woken.recv(64)
        for number in self._taken():
            self._obey(number)
        if not self._ends:
            self._start_missing()
            self._renew()
            for look in self._looks:
                look()
        for each in self._every():
            if each.ends_by is not None:
                each.end()
        running = self._every()
        wait([woken, *(each.process.sentinel for each in running), *(each.pipe for each in running)], self._pause())
        for each in running:
            if each.pipe.poll() and not each.is_ready:
                self._note_ready(each)
        for each in running:
            if each.process.exitcode is not None:
                self._note_end(each)

    def _every(self) -> list[Running]:
        found = [each for slot in self._slots for each in (slot.serving, slot.coming) if each is not None]
        return found + self._leaving

    def _pause(self) -> float | None:
        """Return the seconds until there is something to do without an event."""
        now, at = time.monotonic(), [each.ends_by for each in self._every() if each.ends_by is not None]
        if not self._ends:
            at += [slot.starts_at for slot in self._slots if slot.serving is None]
            if self._looks:
                at.append(now + EVERY)
        return max(0.01, min(at) - now) if at else None

    def _start_missing(self) -> None:
        for slot in self._slots:
            if slot.serving is None and time.monotonic() >= slot.starts_at:
                slot.serving = Running(slot.worker)

    def _renew(self) -> None:
        """Start the successor of one worker, when that of the worker before it serves."""
        if any(slot.coming for slot in self._slots) or not self._to_renew:
            return
        slot = self._to_renew.popleft()
        if slot.serving is not None:
            slot.coming = Running(slot.worker)

    def _note_ready(self, running: Running) -> None:
        try:
            running.pipe.recv_bytes(16)
        except (EOFError, OSError):  # it has ended, which its sentinel tells
            running.is_ready = True
            return
        running.is_ready, running.since = True, time.monotonic()
        for slot in self._slots:
            if slot.coming is running:
                before, slot.serving, slot.coming = slot.serving, running, None
                if before is not None:
                    before.end()
                    self._leaving.append(before)
        if self._on_ready is not None and all(slot.serving and slot.serving.is_ready for slot in self._slots):
            tell, self._on_ready = self._on_ready, None
            tell()

    def _note_end(self, running: Running) -> None:
        code, lived = running.process.exitcode, 0.0 if running.since is None else time.monotonic() - running.since
        running.close()
        if running in self._leaving:
            self._leaving.remove(running)
            return
        for slot in self._slots:
            if slot.coming is running:
                slot.coming = None
                self._to_renew.clear()
                log.error("%s: the new worker ended (%s); the old ones stay", slot.worker.name, _how(code))
            elif slot.serving is running:
                slot.serving = None
                if not self._ends:
                    self._replace(slot, _how(code), lived)

    def _replace(self, slot: Slot, how: str, lived: float) -> None:
        """Let another process take the place of one that died: at once, or later if they die young."""
        if self._on_ready is not None:
            raise StoreError(f"{slot.worker.name} ended before it could serve ({how})")
        slot.failures = slot.failures + 1 if lived < YOUNG else 1
        if slot.failures > MOST_FAILURES:
            raise StoreError(
                f"{slot.worker.name} died {slot.failures} times, each time within {YOUNG:g} s ({how}): the service ends"
            )
        pause = 0.0 if slot.failures == 1 else FIRST_PAUSE * 2.0 ** (slot.failures - 2)
        slot.starts_at = time.monotonic() + pause
        log.error("%s died (%s); another one takes its place", slot.worker.name, how)

    def _obey(self, number: int) -> None:
        if number == signal.SIGHUP:
            self._to_renew = deque(self._slots)
        elif not self._ends:
            self._ends = True
            self._to_renew.clear()
            for each in self._every():
                each.end()
        else:  # asked a second time: now
            for each in self._every():
                each.process.kill()

    def _taken(self) -> list[int]:
        taken, self._signals = self._signals, []
        return taken

    @contextmanager
    def _told_by_signals(self) -> Iterator[socket.socket]:
        """Note signals, and wake the wait for events."""
        woken, waking = socket.socketpair()
        with woken, waking:
            woken.setblocking(False)
            waking.setblocking(False)

            def note(number: int, _frame: object) -> None:
                self._signals.append(number)

            before = {each: signal.signal(each, note) for each in (*ENDING, signal.SIGHUP)}
            fd = signal.set_wakeup_fd(waking.fileno(), warn_on_full_buffer=False)
            try:
                yield woken
            finally:
                signal.set_wakeup_fd(fd)
                for each, handler in before.items():
                    signal.signal(each, handler)


def _how(code: int) -> str:
    """Return how a process ended, for messages."""
    if code < 0:
        try:
            return f"killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"killed by signal {-code}"
    return f"exit code {code}"
