"""The frames of HTTP/2: numbers, bounds, and how one is written."""

from __future__ import annotations

from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM: Final = 0x1
ACK: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
PRIORITIZED: Final = 0x20
PROTOCOL_ERROR, FLOW_CONTROL_ERROR, STREAM_CLOSED, FRAME_SIZE_ERROR = 1, 3, 5, 6
REFUSED_STREAM, COMPRESSION_ERROR, CALM = 7, 9, 11
INITIAL_WINDOW: Final = 4
"""The number of this setting."""
LARGEST_FRAME: Final = 16_384
DEFAULT_WINDOW: Final = 65_535
LARGEST_BODY: Final = 2**20
"""The window of a new stream, which is not widened: several descriptors may have the same header, 60 KB each."""
CONNECTION_WINDOW: Final = 4 * LARGEST_BODY
LARGEST_HEADERS: Final = 32_768
MOST_STREAMS: Final = 256
"""The most requests of a connection that are not answered yet."""
LAST_STREAM: Final = 2**31 - 1


class Failed(Exception):
    """The peer broke the protocol: the connection ends with this code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Return a frame."""
    return b"%b%c%c%b%b" % (len(payload).to_bytes(3, "big"), kind, flags, stream.to_bytes(4, "big"), payload)


def goaway(last: int, code: int = 0) -> bytes:
    """Return the frame that ends a connection: no stream after `last` is answered."""
    return frame(GOAWAY, 0, 0, last.to_bytes(4, "big") + code.to_bytes(4, "big"))


def unpadded(flags: int, payload: bytes) -> bytes:
    """Return the payload without its padding."""
    if not flags & PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise Failed(PROTOCOL_ERROR)
    return payload[1 : len(payload) - payload[0]]


def setting(number: int, value: int) -> bytes:
    """Return one setting of a SETTINGS frame."""
    return number.to_bytes(2, "big") + value.to_bytes(4, "big")


GREETING: Final = frame(
    SETTINGS, 0, 0, setting(3, MOST_STREAMS) + setting(INITIAL_WINDOW, LARGEST_BODY) + setting(6, LARGEST_HEADERS)
) + frame(WINDOW_UPDATE, 0, 0, (CONNECTION_WINDOW - DEFAULT_WINDOW).to_bytes(4, "big"))
"""The server's settings: the most streams, the windows, and the most bytes of header fields."""
