"""The gRPC port: a real client, hostile peers, windows of the peer, draining."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import h2.config
import h2.connection
import h2.events
import h2.settings
import pytest
from hpack import Encoder

from headgate.edge.envoy import frames as f
from headgate.edge.envoy import http2
from headgate.edge.envoy.frames import frame, goaway, setting
from headgate.edge.envoy.messages import RateLimitResponse
from tests.edge.envoy.grpc_port import GrpcPort
from tests.edge.envoy.support import Entry, request

PATH = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
FILE = """\
domain: d
descriptors:
  - {key: k, descriptors: [{key: s, rate_limit: {unit: hour, requests_per_unit: 3}}]}
  - {key: many, rate_limit: {unit: hour, requests_per_unit: 1000}}
"""
PAIR = [("k", "v"), ("s", "t")]
HEAD = [
    (":method", "POST"), (":scheme", "http"), (":path", PATH), (":authority", "a"), ("te", "trailers"),
    ("content-type", "application/grpc"),
]  # fmt: skip


@pytest.fixture
def port(tmp_path: Path) -> Iterator[GrpcPort]:
    (tmp_path / "d.yaml").write_text(FILE, encoding="utf-8")
    made = GrpcPort(tmp_path)
    yield made
    made.close()


def call(port: GrpcPort, message: bytes, path: str = PATH, metadata: Any = None) -> bytes:
    with grpc.insecure_channel(f"127.0.0.1:{port.port}") as channel:
        answer: bytes = channel.unary_unary(path)(message, timeout=10, metadata=metadata)
    return answer


def code(port: GrpcPort, *descriptors: list[Entry], **fields: Any) -> int:
    answer = RateLimitResponse.FromString(call(port, request(*descriptors, **fields).SerializeToString()))
    return int(answer.overall_code)


def error(port: GrpcPort, message: bytes, **options: Any) -> tuple[Any, Any]:
    with pytest.raises(grpc.RpcError) as caught:
        call(port, message, **options)
    return caught.value.code(), caught.value.details()


def dial(port: GrpcPort) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port.port), timeout=10)


def everything_from(peer: socket.socket) -> bytes:
    """All bytes until the other side closes."""
    got = b""
    try:
        while more := peer.recv(65536):
            got += more
    except ConnectionResetError:
        pass
    return got


def kinds(got: bytes) -> list[int]:
    """The kind of each frame."""
    found = []
    while got:
        found.append(got[3])
        got = got[9 + int.from_bytes(got[:3], "big") :]
    return found


def test_a_real_client_is_answered(port: GrpcPort) -> None:
    """Exactly three of four calls pass, each on its own connection."""
    assert [code(port, PAIR) for _ in range(4)] == [1, 1, 1, 2]


def test_many_calls_on_one_connection(port: GrpcPort) -> None:
    """One connection carries any number of calls, many at a time, and exactly the limit passes."""
    message = request([("many", "x")]).SerializeToString()
    with grpc.insecure_channel(f"127.0.0.1:{port.port}") as channel:
        stub: Any = channel.unary_unary(PATH)
        codes = []
        for _ in range(30):
            codes += [each.result(10) for each in [stub.future(message) for _ in range(50)]]
    assert sum(RateLimitResponse.FromString(each).overall_code == 1 for each in codes) == 1000
    assert len(codes) == 1500


def test_a_long_call_is_answered(port: GrpcPort) -> None:
    """Values of 60 KB, the most that Envoy takes from a client, in ten descriptors: no client can make a call stall."""
    asked = [[("k", "v" * 60_000), ("s", str(number))] for number in range(10)]
    assert [code(port, *asked) for _ in range(4)] == [1, 1, 1, 2]


def test_calls_that_are_none_are_errors(port: GrpcPort) -> None:
    """An unknown method, bytes that are no message and a request without domain end with a status of gRPC."""
    assert error(port, b"", path="/other/Method")[0] is grpc.StatusCode.UNIMPLEMENTED
    assert error(port, b"\xff\xff")[0] is grpc.StatusCode.INVALID_ARGUMENT
    assert error(port, b"") == (
        grpc.StatusCode.INVALID_ARGUMENT, "a request needs a domain and at least one descriptor"
    )  # fmt: skip
    assert code(port, PAIR) == 1


def test_a_token_is_asked_for(tmp_path: Path) -> None:
    """With tokens, a call needs one of them as metadata; the health check does not."""
    (tmp_path / "d.yaml").write_text(FILE, encoding="utf-8")
    port = GrpcPort(tmp_path, tokens=(b"old-token-0123456", b"new-token-0123456"))
    message = request(PAIR).SerializeToString()
    try:
        assert error(port, message)[0] is grpc.StatusCode.UNAUTHENTICATED
        assert error(port, message, metadata=[("x-headgate-token", "x")])[0] is grpc.StatusCode.UNAUTHENTICATED
        assert call(port, message, metadata=[("x-headgate-token", "new-token-0123456")])
        assert call(port, b"", path="/grpc.health.v1.Health/Check") == b"\x08\x01"
    finally:
        port.close()


def test_health_tells_that_the_service_ends(port: GrpcPort) -> None:
    """A service that drains is healthy no more."""
    assert call(port, b"", path="/grpc.health.v1.Health/Check") == b"\x08\x01"
    port.calls.drains = True
    assert call(port, b"", path="/grpc.health.v1.Health/Check") == b"\x08\x02"


def block() -> bytes:
    return bytes(Encoder().encode(HEAD))


HOSTILE = {
    "not HTTP/2": b"GET / HTTP/1.1\r\nhost: x\r\n\r\n",
    "half a preface": f.PREFACE[:10] + b"x" * 20,
    "a frame that is too long": f.PREFACE + b"\xff\xff\xff\0\0\0\0\0\1",
    "a stream of the server": f.PREFACE + frame(f.HEADERS, 5, 2, block()),
    "data of no stream": f.PREFACE + frame(f.DATA, 0, 0, b"x"),
    "data of a stream to come": f.PREFACE + frame(f.DATA, 0, 7, b"x"),
    "a broken header block": f.PREFACE + frame(f.HEADERS, 5, 1, b"\xff\xff\xff\xff\xff"),
    "a header list that is too large": f.PREFACE
    + frame(f.HEADERS, 5, 1, b"\x40\x01a\x7f\x81\x1e" + b"x" * 4000 + b"\xbe" * 40),
    "padding beyond the frame": f.PREFACE + frame(f.HEADERS, 0xD, 1, b"\xff\0"),
    "a continuation of nothing": f.PREFACE + frame(f.CONTINUATION, 4, 1, block()),
    "a frame inside a header block": f.PREFACE + frame(f.HEADERS, 0, 1, block()) + frame(f.PING, 0, 0, bytes(8)),
    "empty continuations": f.PREFACE + frame(f.HEADERS, 0, 1, block()) + frame(f.CONTINUATION, 0, 1),
    "endless continuations": f.PREFACE
    + frame(f.HEADERS, 0, 1, block())
    + frame(f.CONTINUATION, 0, 1, b"x" * 16_000) * 3,
    "settings of odd length": f.PREFACE + frame(f.SETTINGS, 0, 0, b"12345"),
    "settings of a stream": f.PREFACE + frame(f.SETTINGS, 0, 1, b""),
    "a window that is too large": f.PREFACE + frame(f.SETTINGS, 0, 0, setting(4, 2**31)),
    "a window that grows too large": f.PREFACE + frame(f.WINDOW_UPDATE, 0, 0, b"\x7f\xff\xff\xff"),
    "a window that does not grow": f.PREFACE + frame(f.WINDOW_UPDATE, 0, 0, bytes(4)),
    "a short ping": f.PREFACE + frame(f.PING, 0, 0, b"x"),
    "a reset of a stream to come": f.PREFACE + frame(f.RST_STREAM, 0, 5, bytes(4)),
    "a push": f.PREFACE + frame(f.PUSH, 4, 1, bytes(8)),
    "a stream twice": f.PREFACE + frame(f.HEADERS, 5, 1, block()) + frame(f.HEADERS, 5, 1, block()),
    "a body that is too long": f.PREFACE + frame(f.HEADERS, 4, 1, block()) + frame(f.DATA, 0, 1, bytes(16_000)) * 66,
    "bodies without an end": f.PREFACE
    + b"".join(frame(f.HEADERS, 4, at, block()) + frame(f.DATA, 0, at, bytes(16_000)) * 60 for at in (1, 3, 5, 7, 9)),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_peer_that_breaks_the_protocol_is_cut_off(port: GrpcPort, data: bytes) -> None:
    """The connection ends, with GOAWAY where HTTP/2 was spoken; others are answered as before."""
    with dial(port) as peer:
        with suppress(ConnectionError):  # long data are cut off while they are sent
            peer.sendall(data)
        got = everything_from(peer)
    assert got.startswith(f.GREETING)
    assert (f.GOAWAY in kinds(got)) == data.startswith(f.PREFACE)
    assert code(port, PAIR) == 1


def test_random_frames_end_nothing_but_their_connection(port: GrpcPort) -> None:
    """200 connections of random frames; then a real client is answered."""
    chance = random.Random(23)
    for _ in range(200):
        frames = b"".join(
            frame(chance.randrange(12), chance.randrange(256), chance.choice([0, 1, 1, 3, 5, 2**31 - 1]),
                  chance.choice([block(), chance.randbytes(chance.randrange(40)), bytes(4), bytes(8)]))
            for _ in range(chance.randrange(1, 12))
        )  # fmt: skip
        with dial(port) as peer:
            peer.sendall(f.PREFACE + frames)
            peer.shutdown(socket.SHUT_WR)
            everything_from(peer)
    assert code(port, PAIR) == 1


def test_a_silent_peer_is_cut_off(port: GrpcPort, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that never begins ends, and so does one whose peer gives no sign of life."""
    monkeypatch.setattr(http2, "FIRST", 0.05)
    monkeypatch.setattr(http2, "SILENCE", 0.05)
    with dial(port) as peer:
        assert everything_from(peer) == f.GREETING
    with dial(port) as peer:
        peer.sendall(f.PREFACE)
        assert everything_from(peer) == f.GREETING + frame(f.PING, 0, 0, b"alive?  ")


def test_connections_are_bounded(port: GrpcPort, monkeypatch: pytest.MonkeyPatch) -> None:
    """One connection too many is closed at once; those that are there go on."""
    monkeypatch.setattr(http2, "MOST_CONNECTIONS", 1)
    with dial(port) as first:
        assert first.recv(100) == f.GREETING
        with dial(port) as second:
            assert everything_from(second) == b""
        first.sendall(f.PREFACE + frame(f.PING, 0, 0, b"12345678"))
        assert first.recv(100) == frame(f.PING, f.ACK, 0, b"12345678")


class Peer:
    """A client by the library h2, whose windows a test chooses."""

    def __init__(self, port: GrpcPort, window: int = 65_535) -> None:
        self.socket = dial(port)
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True, header_encoding="utf-8"))
        self.h2.initiate_connection()
        self.h2.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: window})
        self.flush()

    def flush(self) -> None:
        self.socket.sendall(self.h2.data_to_send())

    def ask(self, message: bytes) -> int:
        stream = self.h2.get_next_available_stream_id()
        self.h2.send_headers(stream, HEAD)
        self.h2.send_data(stream, b"\0" + len(message).to_bytes(4, "big") + message, end_stream=True)
        self.flush()
        return int(stream)

    def events(self) -> list[Any]:
        data = self.socket.recv(65536)
        if not data:
            return []
        events = self.h2.receive_data(data)
        self.flush()
        return list(events)


def test_a_response_fits_into_the_windows_of_the_peer(port: GrpcPort) -> None:
    """A peer with a window of 100 bytes gets a long response piece by piece, whole and in order."""
    peer = Peer(port, window=100)
    message = request(*[[("many", str(number))] for number in range(60)]).SerializeToString()
    stream, body = peer.ask(message), b""
    trailers: Any = None
    while trailers is None:
        for event in peer.events():
            if isinstance(event, h2.events.DataReceived):
                assert len(event.data) <= 100
                body += event.data
                peer.h2.acknowledge_received_data(event.flow_controlled_length, stream)
            elif isinstance(event, h2.events.TrailersReceived):
                trailers = event.headers
        peer.flush()
    peer.socket.close()
    assert trailers == [("grpc-status", "0")]
    assert len(RateLimitResponse.FromString(body[5:]).statuses) == 60


def test_a_draining_service_answers_what_was_sent(port: GrpcPort) -> None:
    """The peer is told; calls that it sent before it knew are answered; then the connection ends."""
    peer = Peer(port)
    first = peer.ask(request(PAIR).SerializeToString())
    ended = []
    while first not in ended:
        ended += [event.stream_id for event in peer.events() if isinstance(event, h2.events.StreamEnded)]
    port.drain()
    second = bytes(Encoder().encode(HEAD))
    body = request(PAIR).SerializeToString()
    peer.socket.sendall(
        frame(f.HEADERS, 4, 3, second) + frame(f.DATA, 1, 3, b"\0" + len(body).to_bytes(4, "big") + body)
        + frame(f.PING, f.ACK, 0, http2.DRAINING)
    )  # fmt: skip
    got = everything_from(peer.socket)
    peer.socket.close()
    assert goaway(f.LAST_STREAM) in got
    assert got.count(b"grpc-status\x010") == 1
    assert got.endswith(goaway(3))
