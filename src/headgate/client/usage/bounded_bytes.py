"""Bytes of any number, of which a bounded part is kept."""

from __future__ import annotations

from typing import Final

WHOLE: Final = 1 << 20
"""The most bytes that are kept, and parsed: more would hold an event loop up for tens of milliseconds."""
TAIL: Final = 1 << 16
"""The bytes that are kept of more than that. Answers tell their usage at the end."""


class BoundedBytes:
    """All bytes while they are few, otherwise the last of them and a few of the first."""

    __slots__ = ("cut", "data", "head")

    def __init__(self) -> None:
        self.data = bytearray()
        self.cut = False
        """Whether bytes are missing between `head` and `data`."""
        self.head = b""

    def add(self, chunk: bytes | bytearray) -> None:
        """Keep these bytes too."""
        if len(chunk) > WHOLE:
            self._cut(bytes(self.data[:64]) + chunk[:64])
            chunk = chunk[-TAIL:]
        self.data += chunk
        if len(self.data) > (2 * TAIL if self.cut else WHOLE):
            self._cut(bytes(self.data[:64]))
            del self.data[:-TAIL]

    def _cut(self, head: bytes) -> None:
        if not self.cut:
            self.cut = True
            self.head = head[:64]
