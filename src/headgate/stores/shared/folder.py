"""The directory of a shared store, how its files are made, and the systems that have shared stores.

A store is a directory. `meta` has its secret and its clock's anchor, `roll` a byte for every process that takes part,
and each table a file of fixed size; `lock` is held by the process that opens the store or makes a table. A file is
built under another name and linked into place, so that no process sees an incomplete file; all of it is allocated at
once, because a sparse file on a full tmpfs would kill Python when it is written.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from typing import Final

from headgate.engine import NATIVE, SHARES
from headgate.errors import InvalidCall, StoreError
from headgate.system import lock_file, missing, needs, unlock_file
from headgate.wording import shown

_INSTEAD: Final = "use memory:// for one process, redis:// for several"
_SHARED: Final = ("a shared store", _INSTEAD)
BUILDING: Final = "building-"
_OWN: Final = re.compile(rf"lock|meta|roll|[0-9a-f]{{14}}\.table|{BUILDING}.*", re.DOTALL)
MODES: Final = (0o700, 0o770)
"""A user's own store, and one of a group."""
LONGEST_BUILD: Final = 60.0
"""Seconds after which a file that is being made was left by a process that was killed."""


def check_system() -> None:
    """Raise `StoreError` on a system without shared stores."""
    needs("fcntl", *_SHARED)
    if NATIVE and not SHARES:
        raise missing(*_SHARED)


def check_engine() -> None:
    """Raise `StoreError` if this process cannot use shared stores."""
    check_system()
    if not NATIVE:
        raise StoreError(
            "shared stores need the native engine, which is not here: install a C compiler and reinstall without "
            f"HEADGATE_PURE, or {_INSTEAD}"
        )


class Folder:
    """The directory of a store, held open: a path that leads elsewhere later makes no difference."""

    def __init__(self, path: str, mode: int) -> None:
        if mode not in MODES:
            given = f"{mode:#o}" if isinstance(mode, int) else shown(mode)
            raise InvalidCall(
                f"the mode of a shared store is 0o700, for one user, or 0o770, for a group; got {given}: users who may "
                "open its files without taking part could read its secret, or keep it locked"
            )
        self.path = path
        self.mode = mode
        try:
            with contextlib.suppress(FileExistsError):
                os.mkdir(path, mode)
                os.chmod(path, mode)
            self.fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise StoreError(f"cannot use the directory {path!r} as a shared store: {_why(error)}") from None
        try:
            self._check_owner()
        except BaseException:
            self.close()
            raise

    def _check_owner(self) -> None:
        found = os.fstat(self.fd)
        grouped = self.mode & 0o070 and found.st_gid in {os.getegid(), *os.getgroups()}
        if os.geteuid() not in (found.st_uid, 0) and found.st_uid != 0 and not grouped:
            raise StoreError(f"the directory {self.path!r} belongs to another user (uid {found.st_uid})")
        if stat.S_IMODE(found.st_mode) & ~self.mode & 0o022:
            raise StoreError(
                f"the directory {self.path!r} may be written by others (mode {stat.S_IMODE(found.st_mode):o}); "
                f"chmod it to {self.mode:o}, or say mode=0o770 if its group is meant"
            )

    @contextlib.contextmanager
    def locked(self, patience: float) -> Iterator[None]:
        """Hold the lock of the store, or raise `StoreError` if another process holds it too long.

        A killed process frees it. Every user with read access can lock a directory, so the lock is a file that only
        processes of the store can open.
        """
        end = time.monotonic() + patience
        while (fd := self._try_lock()) is None:
            if time.monotonic() >= end:
                raise StoreError(f"another process keeps {self.path!r} locked while it opens it")
            time.sleep(0.005)
        try:
            yield
        finally:
            _unlock(fd)

    def _try_lock(self) -> int | None:
        """Return the lock file, locked; None while another process holds it."""
        while True:
            fd = self.open_or_make("lock", 1, bytes)
            try:
                if not lock_file(fd, *_SHARED):
                    os.close(fd)
                    return None
                if os.fstat(fd).st_nlink:
                    return fd
            except BaseException:
                os.close(fd)
                raise
            _unlock(fd)  # removed since it was opened: another process may have locked its successor

    def close(self) -> None:
        """Close the directory."""
        os.close(self.fd)

    def name(self, file: str) -> str:
        """Return the path of a file, for messages."""
        return os.path.join(self.path, file)

    def is_there(self) -> bool:
        """Return whether the path still leads to this directory."""
        try:
            now, then = os.stat(self.path, follow_symlinks=False), os.fstat(self.fd)
        except OSError:
            return False
        return (now.st_ino, now.st_dev) == (then.st_ino, then.st_dev)

    def open(self, file: str) -> int | None:
        """Open a file of the directory for reading and writing; None if it does not exist."""
        try:
            fd = os.open(file, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self.fd)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreError(f"cannot open {self.name(file)!r}: {_why(error)}") from None
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise StoreError(f"{self.name(file)!r} is not a plain file")
        return fd

    def tables(self) -> list[str]:
        """Return the names of all tables."""
        return sorted(file for file in os.listdir(self.fd) if file.endswith(".table"))

    def bytes_of_tables(self) -> int:
        """Return the bytes of all tables together."""
        return sum(os.stat(file, dir_fd=self.fd, follow_symlinks=False).st_size for file in self.tables())

    @contextlib.contextmanager
    def reading(self, file: str) -> Iterator[int]:
        """Open a file of the directory for a block."""
        fd = self.open(file)
        if fd is None:
            raise StoreError(f"{self.name(file)!r} was removed meanwhile")
        with closing(fd):
            yield fd

    def make(self, file: str, size: int, content: bytes) -> None:
        """Make a file of this size that begins with this content, unless another process has made it meanwhile."""
        building = f"{BUILDING}{os.getpid()}-{os.urandom(6).hex()}"
        fd = -1
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            fd = os.open(building, flags, self.mode & 0o660, dir_fd=self.fd)
            self._share(fd)
            _allocate(fd, size)
            os.pwrite(fd, content, 0)
            with contextlib.suppress(FileExistsError):
                os.link(building, file, src_dir_fd=self.fd, dst_dir_fd=self.fd, follow_symlinks=False)
        except OSError as error:
            raise StoreError(f"cannot make {self.name(file)!r} ({size} bytes): {_why(error)}") from None
        finally:
            if fd >= 0:
                os.close(fd)
                with contextlib.suppress(OSError):
                    os.unlink(building, dir_fd=self.fd)

    def _share(self, fd: int) -> None:
        """Give a new file to the owner of the directory, if root makes it."""
        folder = os.fstat(self.fd)
        if os.geteuid() == 0 and folder.st_uid != 0:
            os.fchown(fd, folder.st_uid, folder.st_gid)
        os.fchmod(fd, self.mode & 0o660)

    def open_or_make(self, file: str, size: int, content: Callable[[], bytes]) -> int:
        """Open a file; it is made if it does not exist."""
        for _ in range(10):
            fd = self.open(file)
            if fd is not None:
                return fd
            self.make(file, size, content())
        raise StoreError(f"{self.name(file)!r} is removed as often as it is made")

    def empty(self) -> None:
        """Remove every file of a store except the lock, which is held."""
        for file in os.listdir(self.fd):
            if is_own(file) and file != "lock":
                with contextlib.suppress(OSError):
                    os.unlink(file, dir_fd=self.fd)

    def sweep(self) -> None:
        """Remove half-made files of processes that were killed."""
        for file in os.listdir(self.fd):
            if file.startswith(BUILDING):
                with contextlib.suppress(OSError):
                    if time.time() - os.stat(file, dir_fd=self.fd).st_mtime > LONGEST_BUILD:
                        os.unlink(file, dir_fd=self.fd)


@contextlib.contextmanager
def closing(fd: int) -> Iterator[int]:
    """Close a file at the end of a block."""
    try:
        yield fd
    finally:
        os.close(fd)


def is_own(file: str) -> bool:
    """Return whether a store gives files such a name."""
    return _OWN.fullmatch(file) is not None


def _unlock(fd: int) -> None:
    """Unlock a file and close it."""
    unlock_file(fd)
    os.close(fd)


def _allocate(fd: int, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, 0, size)
        return
    for at in range(0, size, 2**20):
        os.pwrite(fd, bytes(min(2**20, size - at)), at)


def _why(error: OSError) -> str:
    if error.errno == errno.ELOOP:
        return "it is a symbolic link, which could lead anywhere"
    if error.errno == errno.ENOSPC:
        return "no space is left there; a container's /dev/shm often has only 64 MB: lower max_bytes or enlarge it"
    return error.strerror or str(error)
