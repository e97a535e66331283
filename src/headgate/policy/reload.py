"""A policy that follows its file: checked once a second, read in a thread, unchanged if the new file has errors.

A request that finds the file changed starts a thread that reads it; the current policy answers that request. A later
request takes up the new policy when it is ready. There is no thread while the file does not change.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from headgate.errors import HeadgateError, InvalidPolicy
from headgate.forks import after_fork
from headgate.policy.policy import Policy
from headgate.wording import log_of

EVERY: Final = 1.0
"""Seconds between two checks of the file."""
READER: Final = "headgate-policy"
"""The name of the reading thread."""
Ready = TypeVar("Ready")
Stamp = tuple[int, int, int]
log = log_of("headgate.policy")


class PolicyFile(Generic[Ready]):
    """The first policy, and the result of `prepare` for each later one."""

    def __init__(self, given: Policy | str | Path | Mapping[str, Any], prepare: Callable[[Policy], Ready]) -> None:
        self._path = Path(given) if isinstance(given, str | Path) else None
        self.can_change = self._path is not None
        """Whether the policy comes from a file."""
        self._prepare = prepare
        self._seen = self._stamp()
        self._next_look = time.monotonic() + EVERY
        self._turns = count(1)
        self._turn = 0
        """The turn of the current policy: a policy with an earlier turn is older."""
        self._ready: deque[tuple[int, Ready]] = deque()
        self._reader: threading.Thread | None = None
        self.policy = Policy.load(given)
        self.loaded_at = time.time()
        """The time at which the current policy was read."""
        self._forget()
        after_fork(self._forget)

    def _forget(self) -> None:
        """Count failures from zero in a forked child: the parent keeps its own."""
        self.failures = 0
        """The number of times that the file could not be used; the policy stayed as it was."""
        self._counting = threading.RLock()  # a signal handler may interrupt the thread that holds it

    @property
    def path(self) -> Path | None:
        """The file, if the policy comes from one."""
        return self._path

    def next(self) -> Ready | None:
        """Return a new policy once, when it is ready. Checks the file at most once a second, and never reads it."""
        if self._ready:
            return self._taken()
        if self._path is None:
            return None
        now = time.monotonic()
        if now < self._next_look:
            return None
        self._next_look = now + EVERY
        if self._reader is not None and self._reader.is_alive():  # not alive in a forked child, which starts its own
            return None
        stamp = self._stamp()
        if stamp is not None and stamp != self._seen:  # a file that is being replaced may be absent for a moment
            self._start(stamp)
        return None

    def reload(self) -> Ready | None:
        """Read the file in this thread, for a signal handler. A file with errors changes nothing; they are logged."""
        if self._path is not None:
            self._read(next(self._turns), self._stamp())
        return self._taken()

    def read_again(self) -> None:
        """Read the file again at the next check: the policy that was ready cannot be used."""
        self._seen = None

    def _start(self, stamp: Stamp) -> None:
        turn = next(self._turns)
        reader = threading.Thread(target=self._read, args=(turn, stamp), name=READER, daemon=True)
        try:
            reader.start()
        except RuntimeError:  # if no thread can be started, this one reads the file
            self._read(turn, stamp)
        else:
            self._reader = reader

    def _read(self, turn: int, stamp: Stamp | None) -> None:
        ready = self._made()
        if ready is not None:
            self._ready.append((turn, ready))
        self._seen = stamp  # not earlier: a child that is forked meanwhile must read the file itself

    def _made(self) -> Ready | None:
        assert self._path is not None  # noqa: S101 - called only with a path
        try:
            return self._prepare(Policy.load(self._path))
        except InvalidPolicy as errors:
            log.error("the policy is unchanged; %s has errors:\n%s", self._path, errors)
        except HeadgateError as reason:
            log.error("the policy is unchanged; %s cannot be used: %s", self._path, reason)
        except Exception:
            log.exception("the policy is unchanged; %s cannot be read", self._path)
        with self._counting:  # `reload` reads in its caller's thread, perhaps beside the reader
            self.failures += 1
        return None

    def _taken(self) -> Ready | None:
        """Return the newest policy that is ready, if it is newer than the current one."""
        found: Ready | None = None
        try:
            while True:
                turn, ready = self._ready.popleft()
                if turn > self._turn:
                    self._turn, found = turn, ready
        except IndexError:  # also if another request has taken it
            pass
        if found is not None:
            self.loaded_at = time.time()
            log.info("the policy was read again from %s", self._path)
        return found

    def _stamp(self) -> Stamp | None:
        if self._path is None:
            return None
        try:
            seen = os.stat(self._path)
        except OSError:
            return None
        return seen.st_mtime_ns, seen.st_size, seen.st_ino
