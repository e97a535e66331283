"""The fields of a protobuf message, without the library: enough for the few messages that tell a wait."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

_LONGEST_VARINT: Final = 10
_FIXED: Final = {1: 8, 5: 4}
"""The sizes of the wire types that are skipped."""


class Malformed(Exception):
    """The bytes are not a message."""


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place, byte in enumerate(data[at : at + _LONGEST_VARINT]):
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value, at + place + 1
    raise Malformed


def fields_in(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the number and the value of each varint, string or message; raise `Malformed` for any other bytes."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        kind = tag & 7
        value: int | bytes
        if kind == 0:
            value, at = _varint(data, at)
        elif kind == 2:
            size, at = _varint(data, at)
            value, at = data[at : at + size], at + size
        elif kind in _FIXED:
            at += _FIXED[kind]
            continue
        else:
            raise Malformed
        if at > len(data):
            raise Malformed
        yield tag >> 3, value


def messages(data: bytes, number: int) -> list[bytes]:
    """Return the strings or messages of one field."""
    return [value for found, value in fields_in(data) if found == number and isinstance(value, bytes)]


def last_varint(data: bytes, number: int) -> int:
    """Return the number in one field: the last, or 0 if there is none."""
    return ([value for found, value in fields_in(data) if found == number and isinstance(value, int)] or [0])[-1]
