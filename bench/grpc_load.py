"""A client of gRPC that costs little itself: unary calls of one message, several under way on each connection."""

from __future__ import annotations

import selectors
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

from bench.contestant import WorkloadError

HOST = "127.0.0.1"
CONNECTIONS = 2
UNDER_WAY = 8
"""Calls of one connection."""
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY = 0, 1, 3, 4, 6, 7
ACK = END_STREAM = 1
END_HEADERS = 4
WIDE = 2**30
"""The window that the peer gets: no answer waits for another."""


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


class Connection:
    """A connection whose calls are answered one for one."""

    def __init__(self, port: int, path: str, message: bytes) -> None:
        from hpack import Encoder

        fields = [
            (":method", "POST"), (":scheme", "http"), (":path", path), (":authority", HOST), ("te", "trailers"),
            ("content-type", "application/grpc"),
        ]  # fmt: skip
        encoder = Encoder()
        self.socket = socket.create_connection((HOST, port), 10)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        settings = (4).to_bytes(2, "big") + WIDE.to_bytes(4, "big")
        window = frame(8, 0, 0, WIDE.to_bytes(4, "big"))
        self.socket.sendall(PREFACE + frame(SETTINGS, 0, 0, settings) + window)
        self._first, self._later = encoder.encode(fields), encoder.encode(fields)
        self._body = b"\0" + len(message).to_bytes(4, "big") + message
        self._stream = 1
        self._data = bytearray()

    def ask(self, count: int) -> bytes:
        """Return the frames of some calls."""
        parts = []
        for _ in range(count):
            head = self._first if self._stream == 1 else self._later
            parts += [
                frame(HEADERS, END_HEADERS, self._stream, head),
                frame(DATA, END_STREAM, self._stream, self._body),
            ]
            self._stream += 2
        return b"".join(parts)

    def answered(self) -> int:
        """Read what there is; return the number of calls that were answered, for which as many new ones are sent."""
        data, at, done, replies = self._data, 0, 0, b""
        data += self.socket.recv(262_144)
        while len(data) - at >= 9:
            end = at + 9 + int.from_bytes(data[at : at + 3], "big")
            if len(data) < end:
                break
            kind, flags = data[at + 3], data[at + 4]
            if kind == HEADERS and flags & END_STREAM:
                done += 1
            elif kind in (SETTINGS, PING) and not flags & ACK:
                replies += frame(kind, ACK, 0, bytes(data[at + 9 : end]) if kind == PING else b"")
            elif kind in (RST_STREAM, GOAWAY):
                raise WorkloadError(f"the server ended a call or a connection: {bytes(data[at:end])!r}")
            at = end
        del data[:at]
        if done or replies:
            self.socket.sendall(replies + self.ask(done))
        return done


@contextmanager
def connected(port: int, path: str, message: bytes, connections: int) -> Iterator[selectors.BaseSelector]:
    """Connections on which calls are under way."""
    opened = [Connection(port, path, message) for _ in range(connections)]
    with selectors.DefaultSelector() as selector:
        for each in opened:
            selector.register(each.socket, selectors.EVENT_READ, each)
            each.socket.sendall(each.ask(UNDER_WAY))
        yield selector
    for each in opened:
        each.socket.close()


def call(
    port: int, path: str, message: bytes, seconds: float, most: int = 10**9, connections: int = CONNECTIONS
) -> tuple[int, float]:
    """Call as fast as the answers come; return their number and the seconds that they took."""
    answers = 0
    with connected(port, path, message, connections) as selector:
        start = perf_counter()
        while (now := perf_counter()) < start + seconds and answers < most:
            for key, _ in selector.select(1):
                connection: Any = key.data
                answers += connection.answered()
    if not answers:
        raise WorkloadError("there was no answer")
    return answers, now - start
