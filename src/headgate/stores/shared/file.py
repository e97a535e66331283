"""The files of a shared store: how a table is read and checked, and how large a new one is.

A table is allocated whole, within the bytes that the other tables have left.
"""

from __future__ import annotations

import mmap
import os
import struct
import subprocess
import sys
from hashlib import blake2b
from typing import Final

from headgate.algorithms import bucket, log
from headgate.engine import slots_for, words_for
from headgate.errors import StoreError
from headgate.layout import EPOCH_LEAD, HEADER_WORDS, KINDS, MAGIC, TEXT_AT, VERSION, WAYS, WORD, Head
from headgate.limit import Limit

META: Final = struct.Struct("<qqq16sq")
"""The file `meta`: magic, layout, the mark of the boot it was made in, the secret, and the anchor of the clock."""
LEAST_KEYS: Final = 1_000
"""A table of rates for fewer keys would drop keys in use all the time. (Few keys have units in flight at once.)"""
PART: Final = 4
"""A table takes this part of the bytes left: the first has room for many keys, and the twelfth still for thousands."""
SUBWINDOWS: Final = 512
"""The bytes that `sliding-window/60` keeps a key."""
_HEAD: Final = struct.Struct(f"<{len(Head._fields)}q")


def boot_mark() -> int:
    """Return a number that changes with every boot: states of an earlier boot have times of another counter."""
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:
            text = file.read()
    except OSError:
        command = ["/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"]
        text = subprocess.run(command, capture_output=True, check=False).stdout  # noqa: S603 - a fixed command
    if not text.strip():
        raise StoreError(f"this system ({sys.platform}) does not tell one boot from another, which shared stores need")
    return int.from_bytes(blake2b(text.strip(), digest_size=7).digest(), "little")


def mapped(fd: int, size: int) -> memoryview:
    """Return the file as words of memory, shared with every process that maps it."""
    return memoryview(mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)).cast("q")


def read_head(fd: int, name: str) -> Head:
    """Return the header of a table; raise `StoreError` if it does not describe the file."""
    size = os.fstat(fd).st_size
    raw = os.pread(fd, _HEAD.size, 0)
    if len(raw) < _HEAD.size:
        raise StoreError(f"{name!r} is cut short: {size} bytes do not hold a header; remove it")
    head = Head(*_HEAD.unpack(raw))
    if head.magic != MAGIC:
        raise StoreError(f"{name!r} is not a table of headgate; remove it, or use another directory")
    if head.version != VERSION:
        raise StoreError(f"{name!r} has layout {head.version}, this headgate knows {VERSION}; remove it")
    shape = (head.kind, head.sets, head.words, head.stride, head.journal)
    if min(shape) < 0 or head.sets < 1 or max(shape) >= 2**40 or not 1 <= head.journal <= head.words <= head.stride:
        raise StoreError(f"the header of {name!r} is not valid (shape {shape}); remove it")
    if head.size != size or head.expected_size != size:
        raise StoreError(f"{name!r} has {size} bytes where its header says {head.expected_size}: cut short; remove it")
    return head


def head_bytes(head: Head, words: str) -> bytes:
    """Return the page of the header."""
    text = words.encode("utf-8", "surrogatepass")[: HEADER_WORDS * WORD - TEXT_AT - 1]
    return _HEAD.pack(*head).ljust(TEXT_AT, b"\0") + text.ljust(HEADER_WORDS * WORD - TEXT_AT, b"\0")


def head_words(fd: int) -> list[str]:
    """Return namespace, family and first limit of a table."""
    raw = os.pread(fd, HEADER_WORDS * WORD - TEXT_AT, TEXT_AT)
    return raw.rstrip(b"\0").decode("utf-8", "replace").split("\0")


def new_head(limit: Limit, order: int, now_us: int, left: int, max_keys: int | None) -> Head:
    """Return the header of a new table for the states of this limit; raise `StoreError` if `left` bytes are too few."""
    words = words_for(limit)
    head = Head(
        magic=MAGIC,
        version=VERSION,
        size=0,
        boot=boot_mark(),
        kind=KINDS.index(limit.step.KIND),
        sets=0,
        words=words,
        stride=words + (limit.block_us > 0),
        journal=2 if limit.step is log else words,
        epoch=(now_us - EPOCH_LEAD) // 8 * 8 if limit.step is bucket else 0,
        order=order,
    )
    head = head._replace(sets=_sets(head, limit, left, max_keys))
    if head.expected_size > left:
        raise StoreError(_no_room(head, limit, left, max_keys))
    return head._replace(size=head.expected_size)


def _sets(empty: Head, limit: Limit, left: int, max_keys: int | None) -> int:
    """Return the number of sets of slots: for `max_keys`, or as many as fit a part of the bytes left."""
    if limit.in_flight:
        most = slots_for(max_keys or 2**40) // WAYS
        return max(1, min(most, empty.sets_within(left // PART)))
    if max_keys is not None:
        return slots_for(max_keys) // WAYS
    return max(slots_for(LEAST_KEYS) // WAYS, empty.sets_within(left // PART))


def _no_room(head: Head, limit: Limit, left: int, max_keys: int | None) -> str:
    each = WORD * (1 + head.stride)
    keys = max_keys if max_keys is not None and not limit.in_flight else head.slots * 3 // 4
    advice = "raise max_bytes" if max_keys is None else "raise max_bytes or lower max_keys"
    if limit.step is log and each > SUBWINDOWS:
        advice += f", or choose `by sliding-window/60`, which keeps {SUBWINDOWS} bytes a key"
    return (
        f"no room for {limit} in the shared store: it keeps {each} bytes a key, so {keys} keys "
        f"need {head.expected_size} bytes, and {max(0, left)} bytes are left; {advice}"
    )
