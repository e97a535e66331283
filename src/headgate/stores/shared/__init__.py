"""States in memory that every process on this host shares: one exact limit, no server."""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import headgate.logs  # noqa: F401 - read now: where no file can be opened, an answer without a table is logged
from headgate.clock import Clock, SystemClock, steady_ns
from headgate.engine import Engine, words_for
from headgate.errors import InvalidLimit, StoreError
from headgate.forks import after_fork
from headgate.layout import KINDS, MAGIC, PARTICIPANTS, ROLL_BYTES, VERSION
from headgate.limit import Limit, stored_limit
from headgate.stores.shared.file import META, boot_mark, head_bytes, head_words, mapped, new_head, read_head
from headgate.stores.shared.folder import Folder, check_engine
from headgate.stores.tables import TableStore, check_room
from headgate.wording import explained

DEFAULT_MAX_BYTES: Final = 32 * 2**20
"""Half of the default size of a container's /dev/shm."""
PATIENCE: Final = 5.0
"""Seconds to wait for another process to finish opening the store."""

Name = tuple[str, str, int]
"""The namespace of a table, its family of limits, and the words of a state."""


class Opened(NamedTuple):
    """A table that this process uses, one of the limits whose states it keeps, and its file."""

    table: Any
    limit: Limit
    file: str


class SharedStore(TableStore):
    """A directory of tables, best on a tmpfs such as /dev/shm. Processes that open one directory share its budgets.

    Limits of one algorithm and period, and of about one size where sizes differ, keep their states in one table.
    `max_bytes` bounds all tables together: a new one is allocated whole, and takes a quarter of what is left, or room
    for `max_keys` where that is given. `mode` is that of the directory, 0o700 or, for the processes of a group,
    0o770.
    """

    @explained
    def __init__(
        self,
        path: str,
        *,
        max_keys: int | None = None,
        max_bytes: int = DEFAULT_MAX_BYTES,
        mode: int = 0o700,
        clock: Clock | None = None,
    ) -> None:
        check_engine()
        super().__init__(Engine(clock or SystemClock()), max_keys, max_bytes)
        self.path = os.path.abspath(path)
        self.mode = mode
        self._clock = clock
        self._tables: dict[Name, Opened] = {}
        self._opening = threading.RLock()
        self._open_files: dict[str, int] = {}
        weakref.finalize(self, _close_all, self._open_files)
        self._folder = self._open_folder(PATIENCE)
        self._join()
        after_fork(self.rejoin)

    def clear(self, namespace: str) -> None:
        """Forget every key of a namespace, also under limits that only other processes use."""
        for file in self._folder.tables():
            with self._folder.reading(file) as fd:
                words = head_words(fd)
            if len(words) == 3 and words[0] == namespace:
                self._table(namespace, stored_limit(words[2]))
        for (name, *_), opened in list(self._tables.items()):
            if name == namespace and not opened.table.clear():
                raise StoreError(f"a process that holds a part of {self.path!r} is stopped: nothing was forgotten")

    def has_table(self, namespace: str, limit: Limit) -> bool:
        """Whether the table of a limit is there; `bind` would make it."""
        name = (namespace, limit.family, words_for(limit))
        return name in self._tables or f"{_order(name):014x}.table" in self._folder.tables()

    def rejoin(self) -> None:
        """Join the store again in a forked child: the number is the parent's, and its locks may be held for ever."""
        self._opening = threading.RLock()
        self._engine.renew_lock()
        with contextlib.suppress(OSError, StoreError):  # the next decision tries again, and is degraded until then
            self._join()

    def _join(self) -> None:
        """Join the store under a number of this process."""
        self._engine.leave()
        self._close("roll")
        roll = self._folder.open_or_make("roll", ROLL_BYTES, lambda: b"")
        try:
            if os.fstat(roll).st_size != ROLL_BYTES:
                raise StoreError(f"{self._folder.name('roll')!r} is not {ROLL_BYTES} bytes long; remove the store")
            if not self._engine.join(roll, mapped(roll, ROLL_BYTES), self._look_after, self._find_tables):
                raise StoreError(f"{PARTICIPANTS} processes take part in {self.path!r} already")
        except BaseException:
            os.close(roll)
            raise
        self._open_files["roll"] = roll

    def _close(self, file: str) -> None:
        fd = self._open_files.pop(file, None)
        if fd is not None:
            os.close(fd)

    def _open_folder(self, patience: float) -> Folder:
        """Open the directory, with a secret and a clock that belong to this boot."""
        folder = Folder(self.path, self.mode)
        try:
            with folder.locked(patience):  # only while the store is opened
                folder.sweep()
                self._use_meta(folder)
        except BaseException:
            folder.close()
            raise
        self._close(".")
        self._open_files["."] = folder.fd
        return folder

    def _use_meta(self, folder: Folder) -> None:
        boot = boot_mark()
        meta, secret, anchor_ns, made_in = _read_meta(folder, boot)
        if made_in != boot:  # the files outlived a reboot
            os.close(meta)
            folder.empty()
            meta, secret, anchor_ns, _ = _read_meta(folder, boot)
        self._close("meta")
        self._open_files["meta"] = meta
        self._engine.use_secret(secret)
        if self._clock is None:
            clock = SystemClock()
            clock.anchor_ns = anchor_ns
            self._engine.use_clock(clock)

    def _look_after(self) -> bool:
        """Return whether every file is in its place. The first process that misses a file makes it again, for all."""
        try:
            with self._opening:
                if self._is_removed():
                    self._folder = self._open_folder(0.0)
                    self._join()
                elif "roll" not in self._open_files:  # a forked child that could not join the store at first
                    self._join()
                for name, (table, limit, file) in self._tables.items():
                    if file not in self._open_files or os.fstat(self._open_files[file]).st_nlink == 0:
                        self._renew_table(table, file, limit, name)
        except (OSError, StoreError):
            return False
        return True

    def _renew_table(self, table: Any, file: str, limit: Limit, name: Name) -> None:  # noqa: ANN401
        """Let a table use a new file in place of the removed one; the next decision tries again if it cannot now."""
        view = self._open_table(file, limit, name)
        try:
            table.attach(view)
        except StoreError:
            self._close(file)
            raise

    def _is_removed(self) -> bool:
        """Return whether the path leads to another directory, or a file on which all others depend is gone."""
        pillars = [self._open_files[file] for file in ("meta", "roll") if file in self._open_files]
        return not self._folder.is_there() or any(os.fstat(fd).st_nlink == 0 for fd in pillars)

    def _find_tables(self) -> bool:
        """Open tables that other processes have added to families of this process: a key may be there now."""
        try:
            with self._opening:
                for file in self._folder.tables():
                    if file not in self._open_files:
                        self._open_relative(file)
        except (OSError, StoreError, InvalidLimit):
            return False
        return True

    def _open_relative(self, file: str) -> None:
        with self._folder.reading(file) as fd:
            words = head_words(fd)
        if len(words) == 3 and (words[0], words[1]) in self._families:
            self._table(words[0], Limit.parse(words[2]))

    def _table(self, namespace: str, limit: Limit) -> Any:  # noqa: ANN401 - the types follow the pure engine, which has none
        name = (namespace, limit.family, words_for(limit))
        with self._opening:
            known = self._tables.get(name)
            if known is None:
                if not self._look_after():
                    raise StoreError(f"the files of {self.path!r} are gone and cannot be made again")
                check_room(len(self._tables))
                known = self._tables[name] = self._open(name, limit)
        return known.table

    def _each_table(self) -> Iterator[Any]:
        return (opened.table for opened in self._tables.values())

    def _open(self, name: Name, limit: Limit) -> Opened:
        file = f"{_order(name):014x}.table"
        view = self._open_table(file, limit, name)
        family = self._families.setdefault(name[:2], self._engine.family()) if limit.step.SIZED else None
        table = self._engine.shared_table(limit, view, family)
        if family is not None:
            family.add(table)
        return Opened(table, limit, file)

    def _open_table(self, file: str, limit: Limit, name: Name) -> memoryview:
        """Return the memory of a table, checked; the file is made if it is missing."""
        fd = self._folder.open(file)
        if fd is None:
            fd = self._make_table(file, limit, name)
        try:
            head = read_head(fd, self._folder.name(file))
            if (head.boot, head.kind, head.order) != (boot_mark(), KINDS.index(limit.step.KIND), _order(name)):
                raise StoreError(f"{self._folder.name(file)!r} holds the states of something else; remove it")
            if (head.stride > head.words) != (limit.block_us > 0) or head.words != name[2]:
                raise StoreError(f"{self._folder.name(file)!r} was made for limits of another shape; remove it")
            view = mapped(fd, head.size)
        except BaseException:
            os.close(fd)
            raise
        self._close(file)
        self._open_files[file] = fd
        return view

    def _make_table(self, file: str, limit: Limit, name: Name) -> int:
        """Make a table, one process at a time: the free bytes are divided once, and none are allocated twice."""
        with self._folder.locked(PATIENCE):
            fd = self._folder.open(file)
            if fd is None:
                left = self.max_bytes - self._folder.bytes_of_tables()
                head = new_head(limit, _order(name), self._engine.clock.now_us(), left, self.max_keys)
                text = f"{name[0]}\0{name[1]}\0{limit}"
                fd = self._folder.open_or_make(file, head.size, lambda: head_bytes(head, text))
                self._engine.count_table()
        return fd


def _order(name: Name) -> int:
    """Return the number of a table, the same in every process: locks of several tables are taken in this order."""
    words = "\0".join(map(str, name)).encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(words, digest_size=7).digest(), "little")


def _close_all(files: dict[str, int]) -> None:
    for fd in files.values():
        os.close(fd)


def _read_meta(folder: Folder, boot: int) -> tuple[int, bytes, int, int]:
    """Return the open file, the store's secret, the offset of its clock from the steady one, and its boot."""
    anchor = time.time_ns() - steady_ns()
    meta = folder.open_or_make("meta", META.size, lambda: META.pack(MAGIC, VERSION, boot, os.urandom(16), anchor))
    raw, size = os.pread(meta, META.size, 0), os.fstat(meta).st_size
    magic, version, made_in, secret, anchor_ns = META.unpack(raw) if size == META.size else (0, 0, 0, b"", 0)
    if magic != MAGIC or version != VERSION:
        os.close(meta)
        raise StoreError(f"{folder.name('meta')!r} is not headgate's, or of another layout; remove it")
    return meta, secret, anchor_ns, made_in
