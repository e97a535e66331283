"""The directory in which workers publish: one file for each worker number, replaced whole.

A worker holds the lock of its number while it lives, so the kernel ends it with the worker. The next worker takes over
the number of a dead one, and keeps the counts of the dead beside its own: files do not pile up, and no count is lost.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from headgate.errors import StoreError
from headgate.observe.merging import merged
from headgate.observe.published import ALL_KEYS, NO_KEYS, Past, Published, read_file, text_of
from headgate.observe.snapshot import Snapshot
from headgate.system import lock_file, needs
from headgate.wording import log_of

_PUBLISH: Final = ("publish", "leave it out, and export one process")
MOST_WORKERS: Final = 1_024
MOST_BYTES: Final = 8 * 2**20
"""A larger file is not ours."""
BUFFER: Final = 256 * 2**10
"""The bytes that are read at once: most files are smaller."""
BROKEN: Final = (ValueError, LookupError, TypeError, AttributeError)
"""Errors of a file that has another form than ours."""
log = log_of("headgate.observe")


class Directory:
    """A directory of published counts, and the place of this process in it."""

    def __init__(self, path: Path, make: bool = True) -> None:
        needs("fcntl", *_PUBLISH)
        self._path = path
        self._make = make
        self._lock: int | None = None
        self._number = 0
        self._past: Past | None = None
        """The counts of dead workers that had this number."""
        self._told: set[str] = set()

    def write(self, own: Snapshot) -> None:
        """Replace the file of this process."""
        if self._lock is None:
            self._take_number()
        text = text_of(own, self._past)
        new = self._path / f"worker-{self._number}.new"
        new.unlink(missing_ok=True)
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "w") as file:
            file.write(text)
        new.replace(self._file(self._number))

    def total(self, own: list[Snapshot], keys: int = ALL_KEYS) -> Snapshot:
        """Return the sum of these snapshots, of those of the other workers, and of the counts of the dead."""
        now = time.time()
        try:
            alive, dead = self._others(keys, _trusted)
            return merged([*own, *alive], now, dead, keys != NO_KEYS)
        except BROKEN:  # a part of a file is missing, or of another type: leave that file out
            alive, dead = self._others(keys, _checked)
            return merged([*own, *alive], now, dead, keys != NO_KEYS)

    def _others(self, keys: int, check: Callable[[Published], Published]) -> tuple[list[Snapshot], list[Snapshot]]:
        """Return the snapshots of the other workers that live, and those of the dead."""
        alive: list[Snapshot] = []
        dead: list[Snapshot] = [] if self._past is None else [self._past.seen]
        for number in self._numbers():
            if number == self._number and self._lock is not None:
                continue
            found = self._read(number, keys, check)
            if found is not None:
                (alive if self._is_held(number) else dead).append(found.own)
                dead += [] if found.past is None else [found.past]
        return alive, dead

    def leave(self) -> None:
        """Forget the number, in a forked child: the parent has it."""
        if self._lock is not None:
            os.close(self._lock)  # the parent's description stays open, and so its lock
        self._lock, self._past = None, None

    def _take_number(self) -> None:
        if self._make:
            self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._check()
        for number in range(MOST_WORKERS):
            held = self._open_lock(number)
            if not lock_file(held, *_PUBLISH):
                os.close(held)
                continue
            self._lock, self._number = held, number
            found = self._read(number, ALL_KEYS, _checked)
            self._past = None if found is None else found.as_past()
            return
        raise StoreError(f"{self._path} has {MOST_WORKERS} workers already")

    def _check(self) -> None:
        """Raise if another user could write here."""
        seen = os.lstat(self._path)
        if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.geteuid() or seen.st_mode & 0o022:
            raise StoreError(f"{self._path} must be a directory of this user that nobody else can write")

    def _file(self, number: int) -> Path:
        return self._path / f"worker-{number}.json"

    def _open_lock(self, number: int) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(self._path / f"worker-{number}.lock", flags, 0o600)

    def _numbers(self) -> list[int]:
        try:
            names = os.listdir(self._path)
        except OSError:
            return []
        numbers = (name[7:-5] for name in names if name.startswith("worker-") and name.endswith(".json"))
        return sorted(int(number) for number in numbers if number.isdecimal() and len(number) <= 4)[:MOST_WORKERS]

    def _is_held(self, number: int) -> bool:
        try:
            lock = os.open(self._path / f"worker-{number}.lock", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            return not lock_file(lock, *_PUBLISH, shared=True)
        finally:
            os.close(lock)

    def _read(self, number: int, keys: int, check: Callable[[Published], Published]) -> Published | None:
        """Return what a worker has published; None for a file that is none of ours, which is logged once."""
        path = self._file(number)
        try:
            with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb", BUFFER) as file:
                seen = os.fstat(file.fileno())
                if not stat.S_ISREG(seen.st_mode) or seen.st_uid != os.geteuid() or seen.st_size > MOST_BYTES:
                    raise ValueError("not a file of this user, or too large")
                return check(read_file(file, keys))
        except FileNotFoundError:
            return None
        except (OSError, *BROKEN) as error:
            if path.name not in self._told:
                self._told.add(path.name)
                log.warning("%s cannot be read: %s: %s", path, type(error).__name__, error)
            return None


def _trusted(found: Published) -> Published:
    return found


def _checked(found: Published) -> Published:
    """Raise if a part is missing or has another type."""
    merged([found.own], 0.0, [] if found.past is None else [found.past])
    return found
