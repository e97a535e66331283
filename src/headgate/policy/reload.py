"""A policy that follows its file: looked at once a second, read beside the requests, kept when the new one is wrong.

A request that finds the file changed starts a thread that reads it, and is itself answered by the policy of now. What
the thread has made ready is taken up by a later request. There is no thread while the file stays as it is.
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
from headgate.policy.policy import Policy
from headgate.wording import log_of

EVERY: Final = 1.0
"""Seconds between two looks at the file."""
READER: Final = "headgate-policy"
"""The name of the thread that reads."""
Ready = TypeVar("Ready")
Stamp = tuple[int, int, int]
log = log_of("headgate.policy")


class PolicyFile(Generic[Ready]):
    """The policy at first, and what `prepare` has made of each later one."""

    def __init__(self, given: Policy | str | Path | Mapping[str, Any], prepare: Callable[[Policy], Ready]) -> None:
        self._path = Path(given) if isinstance(given, str | Path) else None
        self._prepare = prepare
        self._seen = self._stamp()
        self._next_look = time.monotonic() + EVERY
        self._turns = count(1)
        self._turn = 0
        """When the policy of now was begun to be read; what was begun before is older."""
        self._ready: deque[tuple[int, Ready]] = deque()
        self._reader: threading.Thread | None = None
        self.policy = Policy.load(given)

    @property
    def can_change(self) -> bool:
        """Whether there is a file to follow."""
        return self._path is not None

    def next(self) -> Ready | None:
        """A policy that is ready, once. Costs a look at the file, at most once a second, and never reads it."""
        if self._ready:
            return self._taken()
        if self._path is None:
            return None
        now = time.monotonic()
        if now < self._next_look:
            return None
        self._next_look = now + EVERY
        if self._reader is not None and self._reader.is_alive():  # of a fork's child it is not, and begins anew
            return None
        stamp = self._stamp()
        if stamp is not None and stamp != self._seen:  # a file that is being exchanged may be gone for a moment
            self._start(stamp)
        return None

    def reload(self) -> Ready | None:
        """Read the file here and now, for a signal handler. A file with errors changes nothing; the log says why."""
        if self._path is not None:
            self._read(next(self._turns), self._stamp())
        return self._taken()

    def read_again(self) -> None:
        """At the next look, as if it had changed: what was made ready cannot be used."""
        self._seen = None

    def _start(self, stamp: Stamp) -> None:
        turn = next(self._turns)
        reader = threading.Thread(target=self._read, args=(turn, stamp), name=READER, daemon=True)
        try:
            reader.start()
        except RuntimeError:  # where no thread can be started, it is read here
            self._read(turn, stamp)
        else:
            self._reader = reader

    def _read(self, turn: int, stamp: Stamp | None) -> None:
        ready = self._made()
        if ready is not None:
            self._ready.append((turn, ready))
        self._seen = stamp  # not before: a child that is forked meanwhile has to read it itself

    def _made(self) -> Ready | None:
        assert self._path is not None  # noqa: S101 - who has none is not asked
        try:
            return self._prepare(Policy.load(self._path))
        except InvalidPolicy as errors:
            log.error("the policy is unchanged; %s has errors:\n%s", self._path, errors)
        except HeadgateError as reason:
            log.error("the policy is unchanged; %s cannot be used: %s", self._path, reason)
        except Exception:
            log.exception("the policy is unchanged; %s cannot be read", self._path)
        return None

    def _taken(self) -> Ready | None:
        """The newest that is ready, if it is newer than the one of now."""
        found: Ready | None = None
        try:
            while True:
                turn, ready = self._ready.popleft()
                if turn > self._turn:
                    self._turn, found = turn, ready
        except IndexError:  # also where another request was quicker
            pass
        if found is not None:
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
