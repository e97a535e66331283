"""What is read from a file of a shared store, and what is checked before a table is believed."""

from __future__ import annotations

import mmap
import os
import struct
import subprocess
import sys
from hashlib import blake2b
from typing import Final

from headgate.errors import StoreError
from headgate.layout import HEADER_WORDS, MAGIC, TEXT_AT, VERSION, WORD, Head

META: Final = struct.Struct("<qqq16sq")
"""Of a store: magic, layout, the mark of the boot it was made in, its secret, and its clock's anchor."""
_HEAD: Final = struct.Struct(f"<{len(Head._fields)}q")


def boot_mark() -> int:
    """A number that changes with every boot: states that outlived one tell the time of another counter."""
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:
            text = file.read()
    except OSError:
        command = ["/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"]
        text = subprocess.run(command, capture_output=True, check=False).stdout  # noqa: S603 - no input of anybody's
    if not text.strip():
        raise StoreError(f"this system ({sys.platform}) does not tell one boot from another, which shared stores need")
    return int.from_bytes(blake2b(text.strip(), digest_size=7).digest(), "little")


def mapped(fd: int, size: int) -> memoryview:
    """The file as words of memory shared with every process that maps it."""
    return memoryview(mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)).cast("q")


def read_head(fd: int, name: str) -> Head:
    """The header of a table, if everything about it can be believed."""
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
        raise StoreError(f"the header of {name!r} makes no sense (shape {shape}); remove it")
    if head.size != size or head.expected_size != size:
        raise StoreError(f"{name!r} has {size} bytes where its header says {head.expected_size}: cut short; remove it")
    return head


def head_bytes(head: Head, words: str) -> bytes:
    """A whole header page."""
    text = words.encode("utf-8", "surrogatepass")[: HEADER_WORDS * WORD - TEXT_AT - 1]
    return _HEAD.pack(*head).ljust(TEXT_AT, b"\0") + text.ljust(HEADER_WORDS * WORD - TEXT_AT, b"\0")


def head_words(fd: int) -> list[str]:
    """Namespace, family and first limit of a table, as its maker wrote them."""
    raw = os.pread(fd, HEADER_WORDS * WORD - TEXT_AT, TEXT_AT)
    return raw.rstrip(b"\0").decode("utf-8", "replace").split("\0")
