"""Header blocks of one connection. A block that leaves the table of the connection as it is needs to be read only once.

A proxy sends the same fields with every call. Most of them point into the table; Envoy, like every client on nghttp2,
spells the path out each time and does not add it to the table. Reading it took as long as the rest of a call.
"""

from __future__ import annotations

from typing import Final, cast

from headgate.edge.envoy import frames as f
from headgate.edge.envoy.frames import Failed
from headgate.wording import requiring

with requiring("headgate.edge.envoy", "hpack", "hpack", "serve"):
    from hpack import Decoder, HPACKError

Fields = dict[bytes, bytes]
LONGEST: Final = 512
"""Bytes of a block that is kept: those of Envoy have 54."""
MOST: Final = 64
"""Blocks that are kept."""


class Blocks:
    """Reads the blocks of a connection in their order."""

    def __init__(self) -> None:
        self._decoder = Decoder(max_header_list_size=f.LARGEST_HEADERS)
        self._known: dict[bytes, Fields] = {}
        """Blocks that change nothing, and their fields; valid until a block changes the table."""

    def fields(self, block: bytes) -> Fields:
        """Return the header fields of the next block."""
        known = self._known.get(block)
        if known is not None:
            return known
        try:
            fields = dict(cast("list[tuple[bytes, bytes]]", self._decoder.decode(block, raw=True)))
        except HPACKError:
            raise Failed(f.COMPRESSION_ERROR) from None
        if not _changes_nothing(block) or len(self._known) >= MOST:
            self._known.clear()
        elif len(block) <= LONGEST:
            self._known[block] = fields
        return fields


def _changes_nothing(block: bytes) -> bool:
    """Whether a block that was decoded neither adds to the table nor resizes it (RFC 7541, section 6)."""
    at = 0
    while at < len(block):
        first = block[at]
        if first >= 0x80:  # points at a field
            _, at = _integer(block, at, 0x7F)
        elif first >= 0x20:  # adds a field, or resizes the table
            return False
        else:  # a value, after its name or a pointer at its name
            name, at = _integer(block, at, 0x0F)
            for _ in range(1 if name else 2):
                length, at = _integer(block, at, 0x7F)
                at += length
    return True


def _integer(block: bytes, at: int, prefix: int) -> tuple[int, int]:
    """Return a number that begins in the low bits of a byte, and where it ends (RFC 7541, section 5.1)."""
    value, at = block[at] & prefix, at + 1
    if value < prefix:
        return value, at
    shift = 0
    while True:
        byte = block[at]
        value += (byte & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if byte < 0x80:
            return value, at
