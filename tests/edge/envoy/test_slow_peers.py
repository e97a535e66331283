"""Peers of the gRPC port that do not read, or give no window: each costs a bounded memory and a bounded time."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from hpack import Encoder

from headgate.edge.envoy import frames as f
from headgate.edge.envoy import http2
from headgate.edge.envoy.frames import frame, setting
from tests.edge.envoy.grpc_port import GrpcPort
from tests.edge.envoy.support import request
from tests.edge.envoy.test_grpc import HEAD, PAIR, code, dial

FILE = """\
domain: d
descriptors:
  - {key: k, descriptors: [{key: s, rate_limit: {unit: hour, requests_per_unit: 3}}]}
  - {key: many, rate_limit: {unit: hour, requests_per_unit: 1000}}
"""
FEW = 8 * 2**20
"""Bytes: far more than the buffers of two sockets, and far less than a flood."""


@pytest.fixture
def port(tmp_path: Path) -> Iterator[GrpcPort]:
    (tmp_path / "d.yaml").write_text(FILE, encoding="utf-8")
    made = GrpcPort(tmp_path)
    yield made
    made.close()


def calls(first: int, count: int) -> bytes:
    """Calls on streams of a connection, from the number `first` on; no block changes the table of the connection."""
    encoder = Encoder()
    encoder.header_table_size = 0
    block = encoder.encode(HEAD)
    message = request([("many", "x")]).SerializeToString()
    body = b"\0" + len(message).to_bytes(4, "big") + message
    return b"".join(
        frame(f.HEADERS, f.END_HEADERS, 2 * number + 1, block) + frame(f.DATA, f.END_STREAM, 2 * number + 1, body)
        for number in range(first, first + count)
    )


def received(peer: socket.socket, end: bytes) -> list[tuple[int, bytes]]:
    """The kind and the payload of each frame until the other side has sent these bytes."""
    got = b""
    while not got.endswith(end):
        got += peer.recv(65536)
    found = []
    while got:
        size = 9 + int.from_bytes(got[:3], "big")
        found.append((got[3], got[9:size]))
        got = got[size:]
    return found


def test_responses_without_a_window_are_open_streams(port: GrpcPort) -> None:
    """Of a peer that lets no byte of a body pass, 256 calls wait; a later one is refused, and may be sent again."""
    with dial(port) as peer:
        peer.sendall(f.PREFACE + frame(f.SETTINGS, 0, 0, setting(f.INITIAL_WINDOW, 0)))
        for first in range(0, 300, 100):
            peer.sendall(calls(first, 100))
        peer.sendall(frame(f.PING, 0, 0, b"12345678"))
        got = received(peer, frame(f.PING, f.ACK, 0, b"12345678"))
        assert [payload for kind, payload in got if kind == f.RST_STREAM] == [f.REFUSED_STREAM.to_bytes(4, "big")] * 44
        peer.sendall(frame(f.SETTINGS, 0, 0, setting(f.INITIAL_WINDOW, 1000)) + frame(f.PING, 0, 0, b"87654321"))
        got = received(peer, frame(f.PING, f.ACK, 0, b"87654321"))
        assert sum(kind == f.DATA for kind, _ in got) == 256
        assert code(port, PAIR) == 1


def test_a_peer_that_does_not_read_is_not_read(port: GrpcPort, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answers fill no memory, since its calls wait in its own socket; without a sign of life it is cut off."""
    monkeypatch.setattr(http2, "FIRST", 0.2)
    monkeypatch.setattr(http2, "SILENCE", 0.2)
    first, sent = 0, 0
    with socket.socket() as peer, pytest.raises(ConnectionError):
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            peer.setsockopt(socket.SOL_SOCKET, option, 8192)  # so that few calls fill them
        peer.settimeout(10)
        peer.connect(("127.0.0.1", port.port))
        peer.sendall(f.PREFACE + frame(f.WINDOW_UPDATE, 0, 0, (2**30).to_bytes(4, "big")))
        while sent < FEW:
            data = calls(first, 200)
            peer.sendall(data)
            first, sent = first + 200, sent + len(data)
    assert sent < FEW
    assert code(port, PAIR) == 1


def test_the_body_of_a_call_without_a_token_is_not_kept(tmp_path: Path) -> None:
    """Five calls are refused before their bodies, which are longer than a connection may hold, have come to an end."""
    (tmp_path / "d.yaml").write_text(FILE, encoding="utf-8")
    port = GrpcPort(tmp_path, tokens=(b"token-0123456789",))
    encoder = Encoder()
    plain, bearing = encoder.encode(HEAD), encoder.encode([*HEAD, ("x-headgate-token", "token-0123456789")])
    message = request([("many", "x")]).SerializeToString()
    try:
        with dial(port) as peer:
            peer.sendall(f.PREFACE)
            for stream in (1, 3, 5, 7, 9):
                peer.sendall(
                    frame(f.HEADERS, f.END_HEADERS, stream, plain) + frame(f.DATA, 0, stream, bytes(16_000)) * 60
                )
            peer.sendall(frame(f.HEADERS, f.END_HEADERS, 11, bearing))
            peer.sendall(frame(f.DATA, f.END_STREAM, 11, b"\0" + len(message).to_bytes(4, "big") + message))
            got = received(peer, b"grpc-status\x010")
        assert sum(b"grpc-status\x0216" in payload for kind, payload in got if kind == f.HEADERS) == 5
    finally:
        port.close()
