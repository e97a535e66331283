"""Clients that are slow, silent or hostile, on a real server in this process; time is an argument of the sweep."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import socket
import ssl

import pytest

from headgate.edge.connections import LONGEST_HEAD, MOST_DROPPED, PATIENCE, BoundedProtocol, Connections
from headgate.edge.http import finish, tls_of
from headgate.edge.settings import Settings
from tests.support.asked import InProcess
from tests.support.certificates import certificate

pytestmark = pytest.mark.engineless

CHECK = b"GET /check HTTP/1.1\r\nHost: a\r\nX-Forwarded-Method: GET\r\nX-Forwarded-Uri: /x\r\n"
POLICY = {"rules": [{"name": "one", "key": "ip", "limits": "1000/hour"}]}


@contextlib.asynccontextmanager
async def serving(**settings):
    """A server on a free port, its connections, and the app."""
    app = InProcess(POLICY).app
    connections = Connections(app)
    listener = socket.create_server(("127.0.0.1", 0))
    loop = asyncio.get_running_loop()
    server = await loop.create_server(connections.protocol, sock=listener, ssl=tls_of(Settings(**settings)))
    writers = []

    async def connect(**how):
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.getsockname()[1], **how)
        writers.append(writer)
        return reader, writer

    try:
        yield connect, connections, app, server
    finally:
        server.close()
        for each in list(connections.state.connections):
            each.transport.abort()
        for writer in writers:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
        await asyncio.sleep(0.01)


async def until(true):
    """Let the server work until something holds."""
    for _ in range(2000):
        if true():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it never holds")


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET /check HT",
        CHECK,
        b"POST /v1/check HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{",
        CHECK + b"Content-Length: 1000000\r\n\r\n|x",
        CHECK + b"\r\n|GET /check",
    ],
    ids=["silent", "line", "head", "body", "body of a check", "second head"],
)
def test_a_client_that_stops_half_way_is_cut(sent):
    """After ten seconds of the sweep's time, whatever it stopped in; an idle connection stays."""

    async def run():
        async with serving() as (connect, connections, _, _):
            idle_reader, idle = await connect()
            idle.write(CHECK + b"\r\n")
            assert (await idle_reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 204")
            reader, writer = await connect()
            await until(lambda: len(connections.state.connections) == 2)
            for part in sent.split(b"|"):
                writer.write(part)
                await asyncio.sleep(0.02)
            connections.sweep(100.0)
            connections.sweep(100.0 + PATIENCE - 0.1)
            await asyncio.sleep(0.001)
            assert len(connections.state.connections) == 2
            connections.sweep(100.0 + PATIENCE)
            with contextlib.suppress(ConnectionError):
                await asyncio.wait_for(reader.read(), 5)
            await until(lambda: len(connections.state.connections) == 1)
            idle.write(CHECK + b"\r\n")
            assert (await idle_reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 204")

    asyncio.run(run())


def test_a_client_that_does_not_read_is_not_read_and_cut():
    """Its requests wait in its own socket and no answers pile up; after ten seconds of the sweep's time it goes."""

    async def run():
        async with serving() as (connect, connections, _, _):
            small = socket.socket()
            small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
            small.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
            small.setblocking(False)
            reader, idle = await connect()
            idle.write(CHECK + b"\r\n")
            await reader.readuntil(b"\r\n\r\n")
            await asyncio.get_running_loop().sock_connect(small, idle.get_extra_info("peername"))
            await until(lambda: len(connections.state.connections) == 2)
            requests = b"GET /openapi.json HTTP/1.1\r\nHost: a\r\n\r\n" * 100
            sent = turns = 0
            while turns < 100:  # of the server, in which nothing more was taken
                try:
                    sent += small.send(requests[sent % len(requests) :])  # a send may end within a request
                    turns = 0
                except BlockingIOError:
                    turns += 1
                    await asyncio.sleep(0.002)
                assert sent < 2**26
            connections.sweep(100.0)
            connections.sweep(100.0 + PATIENCE - 0.1)
            await asyncio.sleep(0.001)
            assert len(connections.state.connections) == 2
            connections.sweep(100.0 + PATIENCE)
            await until(lambda: len(connections.state.connections) == 1)
            idle.write(CHECK + b"\r\n")
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 204")
            small.close()

    asyncio.run(run())


def test_a_head_that_is_too_long_is_answered():
    """431, which no proxy takes for a service that is away; the rest is dropped until the client ends, or is cut."""

    async def run():
        async with serving() as (connect, connections, _, _):
            reader, writer = await connect()
            writer.write(CHECK)
            for _ in range(100):
                writer.write(b"X-A: " + b"a" * 2000 + b"\r\n")
                await writer.drain()
                await asyncio.sleep(0)
            writer.write(b"\r\n" + CHECK + b"\r\n")
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 431 ")
            connections.sweep(100.0)
            connections.sweep(100.0 + PATIENCE)
            with pytest.raises(ConnectionResetError):
                await asyncio.wait_for(reader.read(), 5)  # and no second answer comes before
            await until(lambda: not connections.state.connections)

    asyncio.run(run())
    assert LONGEST_HEAD == 65_536


@pytest.mark.parametrize(
    ("head", "says"),
    [
        (b"POST /v1/check HTTP/1.1\r\nHost: a\r\n", b"HTTP/1.1 413 "),
        (b"POST /nothing HTTP/1.1\r\nHost: a\r\n", b"HTTP/1.1 404 "),
        (CHECK, b"HTTP/1.1 204 "),
    ],
    ids=["too long", "no such path", "check"],
)
def test_a_client_that_sends_its_whole_body_first_hears_one_answer(head, says):
    """The rest of a body that nobody wants is dropped, however long; the connection then takes the next request."""

    async def run():
        async with serving() as (connect, _, _, _):
            reader, writer = await connect()
            writer.write(head + b"Content-Length: %d\r\n\r\n" % (20 << 20))
            for _ in range(20):
                writer.write(b" " * (1 << 20))
                await writer.drain()
            answer = await answered(reader)
            writer.write(CHECK + b"\r\n")
            assert (answer[: len(says)], (await answered(reader))[:13]) == (says, b"HTTP/1.1 204 ")

    asyncio.run(run())


async def answered(reader):
    """The head of the next answer, whose body is read too."""
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)
    length = re.search(rb"content-length: (\d+)", head)
    await reader.readexactly(int(length[1]) if length else 0)
    return head


def test_a_body_without_an_end_is_cut():
    """A client that has its answer and still sends gets ten seconds of the sweep's time, as others do."""

    async def run():
        async with serving() as (connect, connections, _, _):
            reader, writer = await connect()
            writer.write(CHECK + b"Content-Length: %d\r\n\r\n" % (1 << 40))
            assert (await answered(reader)).startswith(b"HTTP/1.1 204 ")
            with contextlib.suppress(ConnectionError):
                for second in range(int(PATIENCE) + 1):
                    assert len(connections.state.connections) == 1
                    writer.write(b" " * (1 << 20))
                    await writer.drain()
                    await asyncio.sleep(0.01)
                    connections.sweep(100.0 + second)
            await until(lambda: not connections.state.connections)

    asyncio.run(run())


def test_a_head_without_an_end_is_cut():
    """A client cannot fill the memory with headers, nor send them for ever."""

    async def run():
        async with serving() as (connect, connections, _, _):
            _, writer = await connect()
            writer.write(CHECK)
            await until(lambda: len(connections.state.connections) == 1)
            with contextlib.suppress(ConnectionError):
                for _ in range(MOST_DROPPED // 20_000 + 10):
                    writer.write(b"X-A: " + b"a" * 20_000 + b"\r\n")
                    await writer.drain()
                    await asyncio.sleep(0)
            await until(lambda: not connections.state.connections)
            writer.close()

    asyncio.run(run())


def test_bytes_that_are_no_request_harm_no_other_client():
    """Questions with bytes changed at random get an answer or are cut, and the next client is served."""
    chance = random.Random(23)
    good = [
        CHECK + b"\r\n",
        b"POST /v1/check HTTP/1.1\r\nHost: a\r\nContent-Length: 26\r\n\r\n" + b'{"limit":"1/hour","key":1}',
    ]

    async def run():
        async with serving() as (connect, _, _, _):
            for _ in range(300):
                sent = bytearray(chance.choice(good))
                for _ in range(chance.randrange(1, 12)):
                    sent[chance.randrange(len(sent))] = chance.randrange(256)
                reader, writer = await connect()
                writer.write(bytes(sent[: chance.randrange(1, len(sent) + 1)]))
                writer.write_eof()
                with contextlib.suppress(ConnectionError, TimeoutError):
                    answer = await asyncio.wait_for(reader.read(1000), 0.02)
                    assert not answer.startswith(b"HTTP/1.1 5"), sent
            reader, writer = await connect()
            writer.write(CHECK + b"\r\n")
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 204")

    asyncio.run(run())


def test_the_number_of_connections_is_bounded(monkeypatch):
    """One more than the most is closed at once; the others are served."""

    async def run():
        async with serving() as (connect, connections, _, _):
            monkeypatch.setattr(BoundedProtocol, "most", 2)
            pairs = [await connect() for _ in range(2)]
            await until(lambda: len(connections.state.connections) == 2)
            reader, _ = await connect()
            with contextlib.suppress(ConnectionError):
                assert await asyncio.wait_for(reader.read(), 5) == b""
            pairs[0][1].write(CHECK + b"\r\n")
            assert (await pairs[0][0].readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 204")

    asyncio.run(run())


def test_a_worker_that_ends_answers_the_last_request_of_each_connection(monkeypatch):
    """It is not ready any more, tells each connection to close with its answer, and leaves no task behind."""
    monkeypatch.setattr("headgate.edge.http.LINGER", 0.05)

    async def run():
        async with serving() as (connect, connections, app, server):
            reader, writer = await connect()
            writer.write(CHECK + b"\r\n")
            assert b"connection: close" not in await reader.readuntil(b"\r\n\r\n")
            ending = asyncio.create_task(finish(app, server, connections))
            await asyncio.sleep(0)
            writer.write(b"GET /readyz HTTP/1.1\r\nHost: a\r\n\r\n")
            answer = await reader.read()
            assert answer.startswith(b"HTTP/1.1 503") and b"connection: close" in answer
            await ending
            assert not connections.state.connections and not connections.state.tasks
            writer.close()

    asyncio.run(run())


def test_questions_are_asked_over_tls(tmp_path):
    """With a certificate and its key; files that are none are refused with their names."""
    cert, key = certificate(tmp_path)

    async def run():
        async with serving(tls_cert=cert, tls_key=key) as (connect, _, _, _):
            trusting = ssl.create_default_context(cafile=cert)
            reader, writer = await connect(ssl=trusting, server_hostname="localhost")
            writer.write(CHECK + b"\r\n")
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 204")
            writer.close()

    asyncio.run(run())
    with pytest.raises(ValueError, match=f"cannot use --tls-cert {key} with --tls-key {cert}"):
        tls_of(Settings(tls_cert=key, tls_key=cert))
