"""Permits in a shared store, seen from outside: their ages, and whether their holders live.

No file is locked or changed: a permit that is taken or given back at this moment may be missing.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator
from typing import NamedTuple

from headgate.clock import SECOND, steady_ns
from headgate.layout import KINDS, PERMIT_WORDS, PERMITS_AT, UNIT_BITS, WORD, Head, permits_within
from headgate.stores.shared.file import META, head_words, read_head
from headgate.stores.shared.folder import closing
from headgate.stores.shared.survey import is_held, is_plain, open_folder, open_to_read, survey


class PermitSeen(NamedTuple):
    """One permit. A store does not keep keys: `key` is the hash in its place."""

    age: float
    units: int
    process: int
    """The number of its holder among the processes of the store."""
    alive: bool
    """Whether the holder lives; permits of dead holders are taken back when a request needs them."""
    namespace: str
    limit: str
    key: str


def holders(path: str) -> list[PermitSeen]:
    """Return every permit that is held, the oldest first."""
    survey(path)  # raises an error for a path that is not a store
    with closing(open_folder(path)) as folder:
        found = [
            permit
            for file in sorted(os.listdir(folder))
            if file.endswith(".table")
            for permit in _permits(folder, file, os.path.join(path, file))
        ]
    return sorted(found, key=lambda permit: -permit.age)


def _permits(folder: int, file: str, name: str) -> Iterator[PermitSeen]:
    with closing(open_to_read(file, dir_fd=folder)) as table, closing(open_to_read("roll", dir_fd=folder)) as roll:
        head = read_head(table, name)
        if not is_plain(table) or head.kind != KINDS.index("concurrency"):
            return
        namespace, _, limit = (*head_words(table), "", "")[:3]
        now = (steady_ns() + _anchor(folder)) // 1000
        for tag, since, signature, units in _entries(table, head):
            number = (signature >> 32) - 1
            # After a process has ended, another one gets its number, with another generation.
            word = os.pread(roll, WORD, number * WORD) if is_held(roll, number) else b""
            alive = bool(word) and int.from_bytes(word, "little") & 0xFFFFFFFF == signature & 0xFFFFFFFF
            yield PermitSeen(max(0, now - since) / SECOND, units, number, alive, namespace, limit, f"{tag:016x}")


def _entries(table: int, head: Head) -> Iterator[tuple[int, int, int, int]]:
    """Return tag of the key, start, holder and units of each permit, without those that are half written."""
    most = permits_within(head.words)
    with mmap.mmap(table, head.size, access=mmap.ACCESS_READ) as memory:
        for slot in range(head.slots):
            (tag,) = struct.unpack_from("<Q", memory, (head.tags_at + slot) * WORD)
            start = (head.states_at + slot * head.stride) * WORD
            if not tag or not 0 < (count := struct.unpack_from("<q", memory, start)[0]) <= most:
                continue
            for permit in range(count):
                since, _, held = struct.unpack_from("<qqq", memory, start + (PERMITS_AT + PERMIT_WORDS * permit) * WORD)
                units = held & ((1 << UNIT_BITS) - 1)
                if held > 0 and 0 < units <= most:
                    yield tag, since, held >> UNIT_BITS, units


def _anchor(folder: int) -> int:
    """Return the offset of the store's clock from the steady one, in nanoseconds."""
    with closing(open_to_read("meta", dir_fd=folder)) as meta:
        raw = os.pread(meta, META.size, 0)
    return int(META.unpack(raw)[-1]) if len(raw) == META.size else 0
