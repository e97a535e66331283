"""HTTP/2 for unary calls: a request is a header block and a short body, a response is one write.

Written for the one client that this port has, a proxy with few long connections, and for hostile peers: everything that
a peer can make grow has a bound, and a mistake of the protocol ends the connection with GOAWAY. Bodies fit into the
window that a new stream has, so streams need no window updates. Priorities are read over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol, cast

from headgate.edge.envoy import frames as f
from headgate.edge.envoy.blocks import Blocks, Fields
from headgate.edge.envoy.frames import Failed, frame
from headgate.edge.envoy.receiving import Receiver
from headgate.edge.envoy.sending import Response, Sender

MOST_CONNECTIONS: Final = 1024
FIRST: Final = 10.0
"""Seconds for the first frame of a connection."""
SILENCE: Final = 60.0
"""Seconds after which a peer that sends nothing is asked for a sign of life; after as many again it is dropped."""
DRAINING: Final = b"draining"


class Answering(Protocol):
    """Answers requests."""

    def refusal(self, fields: Fields) -> Response | None:
        """Return the response to a request whose body need not be read."""

    def __call__(self, fields: Fields, body: bytes, respond: Callable[[Response], None], /) -> None:
        """Answer any other request: calls back once with the response, at once or later."""


class Stream:
    """A request that comes in."""

    __slots__ = ("body", "complete", "fields", "size")

    def __init__(self, fields: Fields) -> None:
        self.fields = fields
        self.body = bytearray()
        self.complete = False
        self.size = 0  # bytes that came for the body, with their padding


class Connection(asyncio.Protocol):
    """One connection; `connections` has all of the process."""

    def __init__(self, answer: Answering, connections: set[Connection]) -> None:
        self._answer = answer
        self._connections = connections
        self._data = bytearray()
        self._begun = False
        self._blocks = Blocks()
        self._streams: dict[int, Stream] = {}
        self._last = 0
        self._open_block: tuple[int, int, bytearray] | None = None
        """Stream, flags and bytes of a header block that is not complete."""
        self._heard = False
        self._final = f.LAST_STREAM
        """The last stream that is answered."""
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet the peer; one connection too many is closed."""
        self._transport = cast("asyncio.Transport", transport)
        self._sender = Sender(self._transport)
        self._receiver = Receiver(self._transport)
        if len(self._connections) >= MOST_CONNECTIONS:
            self._transport.abort()
            return
        self._connections.add(self)
        self._transport.write(f.GREETING)
        self._timer = asyncio.get_running_loop().call_later(FIRST, self._check_start)

    def connection_lost(self, _error: Exception | None) -> None:
        """Forget the connection; answers that are still to come are dropped."""
        self._connections.discard(self)
        self._streams.clear()
        if self._timer is not None:
            self._timer.cancel()

    def pause_writing(self) -> None:
        """Read no more while the peer does not read: answers cannot pile up."""
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Read again."""
        self._transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        """Handle the frames that are complete."""
        self._heard = True
        self._data += data
        try:
            if self._begun or self._begin():
                self._read_frames()
        except Failed as failed:
            self._transport.write(f.goaway(self._last, failed.code))
            self._transport.close()
            self._data.clear()

    def drain(self) -> None:
        """Take no new requests: the peer is told, and requests that it sent before it knew are answered."""
        if self._begun:
            self._transport.write(f.goaway(f.LAST_STREAM) + frame(f.PING, 0, 0, DRAINING))
        else:
            self._transport.abort()

    def abort(self) -> None:
        """End the connection now."""
        self._transport.abort()

    def _begin(self) -> bool:
        """Read the first bytes of a connection; a peer that does not speak HTTP/2 is cut off."""
        if not self._data.startswith(f.PREFACE):
            if not f.PREFACE.startswith(self._data):
                self._transport.abort()
            return False
        del self._data[: len(f.PREFACE)]
        self._begun = True
        return True

    def _read_frames(self) -> None:
        data, at, end = self._data, 0, len(self._data)
        while end - at >= 9 and not self._transport.is_closing():
            length = data[at] << 16 | data[at + 1] << 8 | data[at + 2]
            if length > f.LARGEST_FRAME:
                raise Failed(f.FRAME_SIZE_ERROR)
            start = at + 9
            if end - start < length:
                break
            stream = int.from_bytes(data[at + 5 : start], "big") & f.LAST_STREAM
            self._read_frame(data[at + 3], data[at + 4], stream, bytes(data[start : start + length]))
            at = start + length
        del data[:at]

    def _read_frame(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if self._open_block is not None and (kind != f.CONTINUATION or stream != self._open_block[0]):
            raise Failed(f.PROTOCOL_ERROR)
        if kind == f.DATA:
            self._on_data(flags, stream, payload)
        elif kind == f.HEADERS:
            self._on_headers(flags, stream, payload)
        elif kind == f.CONTINUATION:
            self._on_continuation(flags, payload)
        elif kind == f.RST_STREAM:
            self._on_reset(stream, payload)
        elif kind in (f.SETTINGS, f.PING, f.WINDOW_UPDATE):
            self._on_control(kind, flags, stream, payload)
        elif kind == f.PUSH:
            raise Failed(f.PROTOCOL_ERROR)

    def _on_headers(self, flags: int, stream: int, payload: bytes) -> None:
        if not stream & 1:
            raise Failed(f.PROTOCOL_ERROR)
        payload = f.unpadded(flags, payload)
        if flags & f.PRIORITIZED:
            if len(payload) < 5:
                raise Failed(f.FRAME_SIZE_ERROR)
            payload = payload[5:]
        if flags & f.END_HEADERS:
            self._on_block(flags, stream, payload)
        else:
            self._open_block = stream, flags, bytearray(payload)

    def _on_continuation(self, flags: int, payload: bytes) -> None:
        if self._open_block is None:
            raise Failed(f.PROTOCOL_ERROR)
        stream, first_flags, block = self._open_block
        block += payload
        if len(block) > f.LARGEST_HEADERS or not payload:  # endless or empty continuations only cost time
            raise Failed(f.CALM)
        if flags & f.END_HEADERS:
            self._open_block = None
            self._on_block(first_flags, stream, bytes(block))

    def _on_block(self, flags: int, stream: int, block: bytes) -> None:
        fields = self._blocks.fields(block)  # also of a refused request: the table must stay that of the peer
        found = self._streams.get(stream)
        if found is not None:  # trailers
            if not flags & f.END_STREAM:
                raise Failed(f.PROTOCOL_ERROR)
            self._complete(stream, found)
            return
        if stream <= self._last:
            raise Failed(f.STREAM_CLOSED)
        self._last = stream
        if stream > self._final or len(self._streams) + self._sender.waiting >= f.MOST_STREAMS:
            self._transport.write(frame(f.RST_STREAM, 0, stream, f.REFUSED_STREAM.to_bytes(4, "big")))
            return
        found = self._streams[stream] = Stream(fields)
        refusal = self._answer.refusal(fields)
        if refusal is not None:  # now, so that no caller without a token makes this process keep its body
            self._respond(stream, refusal)
        elif flags & f.END_STREAM:
            self._complete(stream, found)

    def _on_data(self, flags: int, stream: int, payload: bytes) -> None:
        self._receiver.take(len(payload))
        found = self._streams.get(stream)
        if found is None:
            if stream == 0 or stream > self._last:
                raise Failed(f.PROTOCOL_ERROR)
            self._receiver.drop(len(payload))  # of a request that was refused or reset
            return
        found.size += len(payload)
        found.body += f.unpadded(flags, payload)
        if len(found.body) > f.LARGEST_BODY:
            raise Failed(f.FLOW_CONTROL_ERROR)
        if flags & f.END_STREAM:
            self._complete(stream, found)

    def _complete(self, stream: int, request: Stream) -> None:
        if request.complete:
            raise Failed(f.STREAM_CLOSED)
        request.complete = True
        self._receiver.drop(request.size)
        self._answer(request.fields, bytes(request.body), lambda response: self._respond(stream, response))

    def _respond(self, stream: int, response: Response) -> None:
        if self._streams.pop(stream, None) is not None:  # not reset, and the connection is there
            self._sender.send(stream, response)
            self._close_when_done()

    def _on_control(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == f.WINDOW_UPDATE:
            if len(payload) != 4:
                raise Failed(f.FRAME_SIZE_ERROR)
            if stream > self._last:
                raise Failed(f.PROTOCOL_ERROR)
            if stream == 0 or stream in self._streams or self._sender.is_sending(stream):
                self._sender.grow(stream, int.from_bytes(payload, "big") & f.LAST_STREAM)
            self._close_when_done()
        elif stream:
            raise Failed(f.PROTOCOL_ERROR)
        elif kind == f.PING:
            self._on_ping(flags, payload)
        elif not flags & f.ACK:
            self._on_settings(payload)

    def _on_settings(self, payload: bytes) -> None:
        if len(payload) % 6:
            raise Failed(f.FRAME_SIZE_ERROR)
        for at in range(0, len(payload), 6):
            if int.from_bytes(payload[at : at + 2], "big") == f.INITIAL_WINDOW:
                self._sender.change_first(int.from_bytes(payload[at + 2 : at + 6], "big"))
        self._transport.write(frame(f.SETTINGS, f.ACK, 0))

    def _on_ping(self, flags: int, payload: bytes) -> None:
        if len(payload) != 8:
            raise Failed(f.FRAME_SIZE_ERROR)
        if not flags & f.ACK:
            self._transport.write(frame(f.PING, f.ACK, 0, payload))
        elif payload == DRAINING:  # the peer knows; later requests are not for this process
            self._final = self._last
            self._transport.write(f.goaway(self._last))
            self._close_when_done()

    def _on_reset(self, stream: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise Failed(f.FRAME_SIZE_ERROR)
        if stream == 0 or stream > self._last:
            raise Failed(f.PROTOCOL_ERROR)
        found = self._streams.pop(stream, None)
        self._receiver.drop(0 if found is None or found.complete else found.size)
        self._sender.forget(stream)
        self._close_when_done()

    def _close_when_done(self) -> None:
        if self._final < f.LAST_STREAM and not self._streams and not self._sender.waiting:
            self._transport.close()

    def _check_start(self) -> None:
        if not self._begun:
            self._transport.abort()
        else:
            self._heard = True
            self._check_life()

    def _check_life(self) -> None:
        if not self._heard:
            self._transport.abort()
            return
        self._heard = False
        self._transport.write(frame(f.PING, 0, 0, b"alive?  "))
        self._timer = asyncio.get_running_loop().call_later(SILENCE, self._check_life)
