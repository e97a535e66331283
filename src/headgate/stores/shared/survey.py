"""A shared store seen from outside, without a change to it; and its removal."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import struct
import sys
from typing import Final, NamedTuple

from headgate.errors import StoreError
from headgate.layout import KINDS, MAGIC, PARTICIPANTS, Head, permits_within
from headgate.limit import Limit
from headgate.stores.contract import Store
from headgate.stores.shared import SharedStore
from headgate.stores.shared.file import boot_mark, head_words, read_head
from headgate.stores.shared.folder import BUILDING, check_system, closing, is_own

_META_START: Final = struct.Struct("<qqq")
"""The start of `meta` in every layout: magic, layout, the mark of its boot."""

_FLOCK: Final = (
    (("start", "length", "pid", "kind", "whence"), struct.Struct("qqihh"))
    if sys.platform == "darwin"
    else (("kind", "whence", "start", "length", "pid"), struct.Struct("hhqqi0q"))
)
"""The fields of C's `struct flock`, and its layout."""


class TableSeen(NamedTuple):
    """One table."""

    namespace: str
    limits: str
    """The common properties of the limits whose states are here."""
    keys: int
    max_keys: int
    slots: int
    evictions: int
    size: int


class Survey(NamedTuple):
    """One store. `unread` has a sentence for each damaged table, `foreign` one for each file of another program."""

    path: str
    mode: int
    uid: int
    this_boot: bool
    participants: int
    size: int
    tables: tuple[TableSeen, ...]
    unread: tuple[str, ...]
    foreign: tuple[str, ...]


def survey(path: str) -> Survey:
    """Return the contents of a store at this moment."""
    check_system()
    with closing(open_folder(path)) as folder:
        try:
            return _survey(path, folder)
        except OSError as error:
            raise StoreError(f"cannot read the shared store {path!r}: {error.strerror}") from None


def has_table(store: Store, namespace: str, limit: Limit) -> bool:
    """Whether a store has a place for the states of a limit; binding it to a shared store would make one."""
    return not isinstance(store, SharedStore) or store.has_table(namespace, limit)


def remove(path: str) -> Survey:
    """Remove a store and return its last contents. Processes that use it notice within a second, and make another."""
    held = survey(path)
    if held.foreign:
        raise StoreError(f"nothing was removed: {held.foreign[0]}, remove it first if it is not needed")
    if not os.access(path, os.W_OK | os.X_OK):
        raise StoreError(f"cannot remove {path!r}: {os.strerror(errno.EACCES)}")
    aside = f"{path}.removed-{os.urandom(6).hex()}"
    try:
        os.rename(path, aside)  # all files at once: no process finds half a store
        _delete(aside)
    except OSError as error:
        raise StoreError(f"cannot remove {error.filename!r}: {error.strerror}") from None
    return held


def open_folder(path: str) -> int:
    """Open the directory of a store, for reading."""
    try:
        return open_to_read(path, os.O_DIRECTORY)
    except OSError as error:
        why = "it is a symbolic link" if os.path.islink(path) else error.strerror
        raise StoreError(f"cannot open the directory {path!r}: {why}") from None


def _survey(path: str, folder: int) -> Survey:
    found = os.fstat(folder)
    made_in = _made_in(path, folder)
    tables: list[TableSeen] = []
    unread: list[str] = []
    foreign: list[str] = []
    size = 0
    for file in sorted(os.listdir(folder)):
        name = os.path.join(path, file)
        with contextlib.suppress(FileNotFoundError):  # removed meanwhile
            seen = os.stat(file, dir_fd=folder, follow_symlinks=False)
            if not is_own(file) or stat.S_ISDIR(seen.st_mode):
                foreign.append(f"{name!r} is not headgate's")
                continue
            size += seen.st_size
            try:
                tables += _see(name, folder, file)
            except StoreError as error:
                unread.append(str(error))
    return Survey(
        path, stat.S_IMODE(found.st_mode), found.st_uid, made_in == boot_mark(), _count_participants(folder), size,
        tuple(sorted(tables)), tuple(unread), tuple(foreign),
    )  # fmt: skip


def _see(name: str, folder: int, file: str) -> list[TableSeen]:
    """Return the table in a file of the store; an empty list for a file that is not a table."""
    if file.startswith(BUILDING):
        raise StoreError(f"{name!r} is being made, or was left by a process that was killed")
    try:
        fd = open_to_read(file, dir_fd=folder)
    except FileNotFoundError:
        raise
    except OSError as error:
        why = "it is a symbolic link" if error.errno == errno.ELOOP else error.strerror
        raise StoreError(f"{name!r} cannot be opened: {why}") from None
    with closing(fd):
        if not is_plain(fd):
            raise StoreError(f"{name!r} is not a plain file")
        return [_see_table(fd, name)] if file.endswith(".table") else []


def _made_in(path: str, folder: int) -> int:
    """Return the boot in which a store was made; a directory without a `meta` of ours is not a store."""
    try:
        meta = open_to_read("meta", dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP):
            raise StoreError(f"{path!r} is not a shared store: it has no file 'meta' of headgate's") from None
        raise
    with closing(meta):
        raw = os.pread(meta, _META_START.size, 0) if is_plain(meta) else b""
    magic, _, made_in = _META_START.unpack(raw) if len(raw) == _META_START.size else (0, 0, 0)
    if magic != MAGIC:
        raise StoreError(f"{path!r} is not a shared store: its file 'meta' is not headgate's")
    return int(made_in)


def _see_table(fd: int, name: str) -> TableSeen:
    head = read_head(fd, name)
    namespace, family = (*head_words(fd), "")[:2]
    slots = head.slots
    return TableSeen(namespace, _common(head, family), head.used, slots * 3 // 4, slots, head.evictions, head.size)


def _common(head: Head, family: str) -> str:
    """Return a family in words: `sliding-log hour, up to 102`."""
    most = {"log": head.words - 2, "concurrency": permits_within(head.words)}.get(KINDS[head.kind % len(KINDS)])
    return family if most is None else f"{family}, up to {most}"


def _count_participants(folder: int) -> int:
    """Return the number of locked bytes of the roll. The kernel tells of locks without taking one."""
    try:
        roll = open_to_read("roll", dir_fd=folder)
    except OSError:  # no process has joined yet; a file that is not a roll is told elsewhere
        return 0
    with closing(roll):
        return sum(is_held(roll, byte) for byte in range(PARTICIPANTS)) if is_plain(roll) else 0


def is_held(fd: int, byte: int) -> bool:
    """Return whether a living process holds this byte of the roll."""
    import fcntl  # not on Windows, which has no shared stores

    ask = {"kind": fcntl.F_WRLCK, "whence": os.SEEK_SET, "start": byte, "length": 1, "pid": 0}
    order, layout = _FLOCK
    answer = fcntl.fcntl(fd, fcntl.F_GETLK, layout.pack(*(ask[field] for field in order)))
    return bool(layout.unpack(answer)[order.index("kind")] != fcntl.F_UNLCK)


def _delete(aside: str) -> None:
    """Delete a store that was renamed. A process that has it open may still add a file, once."""
    with closing(open_folder(aside)) as folder:
        for _ in range(100):
            for file in filter(is_own, os.listdir(folder)):
                os.unlink(file, dir_fd=folder)
            try:
                return os.rmdir(aside)
            except OSError as error:
                if error.errno != errno.ENOTEMPTY:
                    raise
    raise StoreError(f"{aside!r} is filled as often as it is emptied")


def open_to_read(path: str, more: int = 0, dir_fd: int | None = None) -> int:
    """Open a file for reading: no link is followed, no child inherits it, and a pipe does not block."""
    return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | more, dir_fd=dir_fd)


def is_plain(fd: int) -> bool:
    """Return whether this is a plain file, neither a pipe nor a device."""
    return stat.S_ISREG(os.fstat(fd).st_mode)
