"""States in memory that every process on this host shares: one exact limit, no server."""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import os
import threading
import time
import weakref
from hashlib import blake2b
from typing import Any, Final

from headgate.algorithms import bucket, log
from headgate.clock import Clock, SystemClock, steady_ns
from headgate.engine import NATIVE, Book, Gate
from headgate.engine.modes import WAYS, slots_for
from headgate.errors import InvalidLimit, StoreError
from headgate.limit import Limit
from headgate.stores.contract import OnError
from headgate.stores.fallback import Fallback
from headgate.stores.shared_file import (
    KINDS,
    MAGIC,
    META,
    PARTICIPANTS,
    VERSION,
    WORD,
    Folder,
    Head,
    boot_mark,
    head_bytes,
    head_words,
    mapped,
    read_head,
)

DEFAULT_MAX_KEYS: Final = 100_000
MOST_TABLES: Final = 256
EPOCH_LEAD: Final = 2**48
MOST_FLYING: Final = 16 * 2**20
"""Bytes of a table of permits, about: no more keys have something in flight at one time than fit."""
PATIENCE: Final = 5.0
"""Seconds to wait for another process to finish opening the store."""

_stores: weakref.WeakSet[SharedStore] = weakref.WeakSet()


def _join_after_fork() -> None:
    """A forked child takes part under its own number: the parent's ends with the parent."""
    for store in list(_stores):
        store.rejoin()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_join_after_fork)


class SharedStore:
    """A directory of tables, best on a tmpfs such as /dev/shm. Whoever opens the same directory shares its budgets.

    `max_keys` bounds each limit, and is allocated when the limit is first used. `mode` is that of the directory; with
    `0o770` the processes of a group may share it.
    """

    def __init__(
        self,
        path: str,
        *,
        max_keys: int = DEFAULT_MAX_KEYS,
        mode: int = 0o700,
        clock: Clock | None = None,
    ) -> None:
        if not NATIVE or not _shares():
            raise StoreError(
                "shared stores need the native engine and locks on open file descriptions (Linux, macOS); "
                "they are not in the pure engine"
            )
        if isinstance(max_keys, bool) or not isinstance(max_keys, int) or not 0 < max_keys < 2**40:
            raise StoreError(f"max_keys must be a whole number from 1 to 2**40; got {max_keys!r}")
        self.path = os.path.abspath(path)
        self.max_keys = max_keys
        self.mode = mode
        self._clock = clock
        self._book: Any = Book(clock or SystemClock())
        self._tables: dict[tuple[str, str], Any] = {}
        self._opening = threading.RLock()
        self._open_files: dict[str, int] = {}
        weakref.finalize(self, _close_all, self._open_files)
        self._folder = self._open_folder(PATIENCE)
        self._join()
        _stores.add(self)

    def gate(self, namespace: str, limits: tuple[Limit, ...], on_error: OnError = "local") -> Gate:
        """Limits bound to their tables under a namespace."""
        fallback = Fallback(on_error, self._clock)
        return Gate(self._book, limits, lambda limit: self._table(namespace, limit), fallback)

    decides_by_clock = True

    @property
    def clock(self) -> Clock:
        """The clock of every decision, and of waiting."""
        clock: Clock = self._book.clock
        return clock

    def clear(self, namespace: str) -> None:
        """Forget every key of a namespace, also under limits that only other processes use."""
        for file in self._folder.tables():
            with self._folder.reading(file) as fd:
                words = head_words(fd)
            if len(words) == 3 and words[0] == namespace:
                self._table(namespace, Limit.parse(words[2]))
        for (name, _), (table, _, _) in list(self._tables.items()):
            if name == namespace and not table.clear():
                raise StoreError(f"a process that holds a part of {self.path!r} is stopped: nothing was forgotten")

    def keys(self) -> int:
        """Keys remembered now in the tables this process has opened, those that are as new by now included."""
        return sum(len(table) for table, _, _ in self._tables.values())

    def bytes(self) -> int:
        """Bytes of memory the tables hold."""
        return sum(table.bytes for table, _, _ in self._tables.values())

    def evictions(self) -> int:
        """Keys that were forgotten before they were as new, to make room for others."""
        return sum(table.evictions for table, _, _ in self._tables.values())

    def rejoin(self) -> None:
        """Take part anew in a forked child, whose other threads, and the locks they held, are gone."""
        self._opening = threading.RLock()
        with contextlib.suppress(OSError, StoreError):  # tried again at the next decision, which is degraded till then
            self._join()

    def _join(self) -> None:
        """Take part under a number of this process's own."""
        self._book.leave()
        self._close("roll")
        size = PARTICIPANTS * WORD
        roll = self._folder.open_or_make("roll", size, lambda: b"")
        try:
            if os.fstat(roll).st_size != size:
                raise StoreError(f"{self._folder.name('roll')!r} has another size than {size} bytes; remove the store")
            if not self._book.join(roll, mapped(roll, size), self._look_after):
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
        """The directory, with a secret and a clock that belong to this boot."""
        folder = Folder(self.path, self.mode)
        try:
            _lock(folder, patience)  # while it is opened, not while it is used; a killed process frees it
            try:
                folder.sweep()
                self._use_meta(folder)
            finally:
                fcntl.flock(folder.fd, fcntl.LOCK_UN)
        except BaseException:
            folder.close()
            raise
        self._close(".")
        self._open_files["."] = folder.fd
        return folder

    def _use_meta(self, folder: Folder) -> None:
        boot = boot_mark()
        meta, secret, anchor_ns, made_in = _read_meta(folder, boot)
        if made_in != boot:  # it outlived a reboot
            os.close(meta)
            folder.empty()
            meta, secret, anchor_ns, _ = _read_meta(folder, boot)
        self._close("meta")
        self._open_files["meta"] = meta
        self._book.use_secret(secret)
        if self._clock is None:
            clock = SystemClock()
            clock.anchor_ns = anchor_ns
            self._book.use_clock(clock)

    def _look_after(self) -> bool:
        """Whether every file is where it was; what was removed is made anew, by whoever comes first, for all."""
        try:
            with self._opening:
                if self._is_removed():
                    self._folder = self._open_folder(0.0)
                    self._join()
                elif "roll" not in self._open_files:  # a child that could not take part when it was forked
                    self._join()
                for (namespace, identity), (table, limit, file) in self._tables.items():
                    if os.fstat(self._open_files[file]).st_nlink == 0:
                        table.attach(self._open_table(file, limit, namespace, identity))
        except (OSError, StoreError):
            return False
        return True

    def _is_removed(self) -> bool:
        """The directory is another one, or what all of its files depend on is gone from it."""
        pillars = [self._open_files[file] for file in ("meta", "roll") if file in self._open_files]
        return not self._folder.is_there() or any(os.fstat(fd).st_nlink == 0 for fd in pillars)

    def _table(self, namespace: str, limit: Limit) -> Any:  # noqa: ANN401 - the types follow the pure engine, which has none
        name = (namespace, limit.identity)
        with self._opening:
            known = self._tables.get(name)
            if known is None:
                if not self._look_after():
                    raise StoreError(f"the files of {self.path!r} are gone and cannot be made anew")
                if len(self._tables) >= MOST_TABLES:
                    raise StoreError(f"a store holds the states of at most {MOST_TABLES} limits and namespaces")
                file = f"{_order(*name):014x}.table"
                table = self._book.shared_table(limit, self._open_table(file, limit, *name))
                known = self._tables[name] = (table, limit, file)
        return known[0]

    def _open_table(self, file: str, limit: Limit, namespace: str, identity: str) -> memoryview:
        """The memory of a table, made if there is none, and checked."""
        new = self._new_head(limit, _order(namespace, identity))
        text = f"{namespace}\0{identity}\0{limit}"
        fd = self._folder.open_or_make(file, new.expected_size, lambda: head_bytes(new, text))
        try:
            head = read_head(fd, self._folder.name(file))
            if (head.boot, head.kind, head.order) != (new.boot, new.kind, new.order):
                raise StoreError(f"{self._folder.name(file)!r} holds the states of something else; remove it")
            if (head.stride > head.words) != (limit.block_us > 0):
                raise StoreError(f"{self._folder.name(file)!r} was made for limits of another shape; remove it")
            view = mapped(fd, head.size)
        except BaseException:
            os.close(fd)
            raise
        self._close(file)
        self._open_files[file] = fd
        return view

    def _new_head(self, limit: Limit, order: int) -> Head:
        words = limit.step.words(limit.params)
        is_bucket = limit.step is bucket
        epoch = self._book.clock.now_us() - EPOCH_LEAD if is_bucket else 0
        journal = 2 if limit.step is log else words
        max_keys = min(self.max_keys, max(WAYS, MOST_FLYING // (words * WORD))) if limit.in_flight else self.max_keys
        head = Head(
            MAGIC, VERSION, 0, boot_mark(), KINDS.index(limit.step.KIND), slots_for(max_keys) // WAYS, words,
            words + (limit.block_us > 0), journal, epoch, order,
        )  # fmt: skip
        if head.expected_size >= 2**40:
            raise InvalidLimit(
                f"{limit} for {self.max_keys} keys would need {head.expected_size} bytes; lower max_keys"
            )
        return head._replace(size=head.expected_size)


def _order(namespace: str, identity: str) -> int:
    """The number of a table, the same in every process: locks of several are taken in this order."""
    words = f"{namespace}\0{identity}".encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(words, digest_size=7).digest(), "little")


def _close_all(files: dict[str, int]) -> None:
    for fd in files.values():
        os.close(fd)


def _shares() -> bool:
    return bool(importlib.import_module("headgate.engine.native").SHARES)


def _lock(folder: Folder, patience: float) -> None:
    """Be alone with the directory, or say that somebody else has been for too long."""
    end = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(folder.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end:
                raise StoreError(f"another process keeps {folder.path!r} locked while it opens it") from None
            time.sleep(0.005)
        else:
            return


def _read_meta(folder: Folder, boot: int) -> tuple[int, bytes, int, int]:
    """The file, open; the store's secret, what to add to the steady clock, and the boot it was made in."""
    meta = folder.open_or_make("meta", META.size, lambda: _new_meta(boot))
    raw, size = os.pread(meta, META.size, 0), os.fstat(meta).st_size
    magic, version, made_in, secret, anchor_ns = META.unpack(raw) if size == META.size else (0, 0, 0, b"", 0)
    if magic != MAGIC or version != VERSION:
        os.close(meta)
        raise StoreError(f"{folder.name('meta')!r} is not headgate's, or of another layout; remove it")
    return meta, secret, anchor_ns, made_in


def _new_meta(boot: int) -> bytes:
    return META.pack(MAGIC, VERSION, boot, os.urandom(16), time.time_ns() - steady_ns())
