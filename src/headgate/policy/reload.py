"""A policy that follows its file: looked at once a second, exchanged as a whole, kept when the new one is wrong."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from headgate.errors import InvalidPolicy
from headgate.policy.policy import Policy

EVERY: Final = 1.0
"""Seconds between two looks at the file."""
log = logging.getLogger("headgate.policy")


class PolicyFile:
    """The policy of now."""

    def __init__(self, given: Policy | str | Path | Mapping[str, Any]) -> None:
        self._path = Path(given) if isinstance(given, str | Path) else None
        self._seen = self._stamp()
        self._next_look = time.monotonic() + EVERY
        self.policy = Policy.load(given)

    @property
    def name(self) -> str:
        """The file's."""
        return str(self._path or "the policy")

    @property
    def can_change(self) -> bool:
        """Whether there is a file to follow."""
        return self._path is not None

    def changed(self) -> bool:
        """Whether there is a new policy since the last time; costs a look at the file, at most once a second."""
        if self._path is None:
            return False
        now = time.monotonic()
        if now < self._next_look:
            return False
        self._next_look = now + EVERY
        stamp = self._stamp()
        if stamp is None or stamp == self._seen:  # a file that is being exchanged may be gone for a moment
            return False
        self._seen = stamp
        return self.reload()

    def reload(self) -> bool:
        """Read the file now, on a signal for instance. A file with mistakes changes nothing; the log says why."""
        if self._path is None:
            return False
        try:
            self.policy = Policy.load(self._path)
        except InvalidPolicy as mistakes:
            log.error("the policy stays as it was; %s is wrong:\n%s", self._path, mistakes)
            return False
        log.info("the policy was read again from %s", self._path)
        return True

    def _stamp(self) -> tuple[int, int, int] | None:
        if self._path is None:
            return None
        try:
            seen = os.stat(self._path)
        except OSError:
            return None
        return seen.st_mtime_ns, seen.st_size, seen.st_ino
