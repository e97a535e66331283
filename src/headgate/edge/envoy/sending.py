"""The responses of a connection, sent within the windows that the peer gives."""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from headgate.edge.envoy.frames import (
    DATA,
    DEFAULT_WINDOW,
    END_HEADERS,
    END_STREAM,
    FLOW_CONTROL_ERROR,
    HEADERS,
    LARGEST_FRAME,
    LAST_STREAM,
    PROTOCOL_ERROR,
    Failed,
    frame,
)

MOST_WAITING: Final = 1_000_000
"""The most bytes of responses that wait for the peer's window."""


class Response(NamedTuple):
    """Header blocks, encoded without the table that both sides would have to share, and the body between them."""

    head: bytes
    body: bytes = b""
    trailers: bytes = b""


class Sender:
    """Sends responses; the parts for which a window has no room wait for it."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._window = self._first = DEFAULT_WINDOW
        self._windows: dict[int, int] = {}
        """The windows of streams that are not answered, where they differ from the first one."""
        self._waiting: dict[int, tuple[bytes, bytes]] = {}
        """Body and trailers."""
        self._bytes = 0

    def send(self, stream: int, response: Response) -> None:
        """Send a response in one write, if its body fits."""
        head, body, trailers = response
        window = self._windows.get(stream, self._first)
        if self._waiting or len(body) > min(self._window, window, LARGEST_FRAME):
            self._bytes += len(body)
            if self._bytes > MOST_WAITING:
                self._transport.abort()
                return
            self._transport.write(frame(HEADERS, END_HEADERS, stream, head))
            self._waiting[stream] = body, trailers
            self._flush()
            return
        self._windows.pop(stream, None)
        self._window -= len(body)
        if not trailers:
            self._transport.write(frame(HEADERS, END_HEADERS | END_STREAM, stream, head))
            return
        end = frame(HEADERS, END_HEADERS | END_STREAM, stream, trailers)
        self._transport.write(frame(HEADERS, END_HEADERS, stream, head) + frame(DATA, 0, stream, body) + end)

    def is_sending(self, stream: int) -> bool:
        """Whether a part of the response waits."""
        return stream in self._waiting

    @property
    def waiting(self) -> int:
        """The number of responses that wait."""
        return len(self._waiting)

    def grow(self, stream: int, more: int) -> None:
        """Widen the window of the connection (stream 0) or of a stream."""
        window = (self._window if stream == 0 else self._windows.get(stream, self._first)) + more
        if not more or window > LAST_STREAM:
            raise Failed(FLOW_CONTROL_ERROR if more else PROTOCOL_ERROR)
        if stream == 0:
            self._window = window
        else:
            self._windows[stream] = window
        self._flush()

    def change_first(self, window: int) -> None:
        """Take another window for all streams; one that is in use may become negative."""
        if window > LAST_STREAM:
            raise Failed(FLOW_CONTROL_ERROR)
        for stream in self._windows:
            self._windows[stream] += window - self._first
        self._first = window
        self._flush()

    def forget(self, stream: int) -> None:
        """Drop what waits for a stream that the peer has reset."""
        self._windows.pop(stream, None)
        body, _ = self._waiting.pop(stream, (b"", b""))
        self._bytes -= len(body)

    def _flush(self) -> None:
        for stream, (body, trailers) in list(self._waiting.items()):
            window = self._windows.get(stream, self._first)
            while body and (size := min(len(body), self._window, window, LARGEST_FRAME)) > 0:
                self._transport.write(frame(DATA, 0, stream, body[:size]))
                body, window = body[size:], window - size
                self._window -= size
                self._bytes -= size
            if body:
                self._windows[stream], self._waiting[stream] = window, (body, trailers)
            else:
                self._transport.write(frame(HEADERS, END_HEADERS | END_STREAM, stream, trailers))
                self._windows.pop(stream, None)
                del self._waiting[stream]
