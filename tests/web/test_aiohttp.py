"""aiohttp: whatever a handler is and however it answers, its limits hold and its answer says what is left."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import socket
import tempfile
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeAlias

import aiohttp
import pytest
import yarl
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from aiohttp.typedefs import Handler

from headgate import MemoryStore
from headgate.web.aiohttp import RateLimits, limited
from tests.support.awaiting import awaited
from tests.support.edges import still

pytestmark = pytest.mark.engineless

WRONG = {"when": {"status": [401, 403]}}
POLICY: dict[str, Any] = {"rules": [{"name": "api", "key": "ip", "limits": "2/minute"}]}
Client: TypeAlias = "TestClient[web.Request, web.Application]"


class Cancelling(TestServer):
    """Cancels the handlers of clients that go away, in every version of aiohttp."""

    async def _make_runner(self, **options: Any) -> web.AppRunner:
        return web.AppRunner(self.app, **{**options, "handler_cancellation": True})


@contextlib.asynccontextmanager
async def served(app: web.Application, server: type[TestServer] = TestServer) -> AsyncIterator[Any]:
    """A client of an app."""
    async with TestClient(server(app)) as client:
        yield client


async def hello(request: web.Request) -> web.Response:
    """200 and a word."""
    return web.Response(text="hello")


def site(*routes: web.RouteDef, policy: Any = None, middlewares: Any = (), **options: Any) -> web.Application:
    """An app with these routes and these limits."""
    app = web.Application(middlewares=middlewares)
    RateLimits(app, policy, **{"store": still(), **options})
    app.add_routes(routes or [web.get("/", hello)])
    return app


async def statuses(
    client: Client, times: int, path: str | yarl.URL = "/", method: str = "GET", **more: Any
) -> list[int]:
    """The same request again and again."""
    found = []
    for _ in range(times):
        async with client.request(method, path, **more) as answer:
            found.append(answer.status)
    return found


async def stream(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    await response.write(b"hel")
    await response.write_eof(b"lo")
    return response


async def moved(request: web.Request) -> web.Response:
    raise web.HTTPFound("/elsewhere")


async def broken(request: web.Request) -> web.Response:
    raise LookupError("mine")


async def late(request: web.Request) -> web.Response:
    raise TimeoutError


async def nothing(request: web.Request) -> Any:
    return None


@pytest.mark.parametrize(
    ("path", "method", "status"),
    [
        ("/stream", "GET", 200), ("/moved", "GET", 302), ("/broken", "GET", 500), ("/late", "GET", 504),
        ("/nothing", "GET", 500), ("/nowhere", "GET", 404), ("/stream", "POST", 405),
        ("/files/test_aiohttp.py", "GET", 200), ("/files/test_aiohttp.py", "HEAD", 200),
    ],
)  # fmt: skip
@awaited
async def test_every_answer_says_what_is_left(path, method, status, caplog):
    """Streams, errors that are raised, errors that nobody handles, files, and what is not there."""
    caplog.set_level(logging.CRITICAL)
    routes = [web.get("/" + each.__name__, each) for each in (stream, moved, broken, late, nothing)]
    app = site(*routes, web.static("/files", Path(__file__).parent), policy=POLICY)
    async with served(app) as client:
        async with client.request(method, path, allow_redirects=False) as answer:
            assert (answer.status, answer.headers.getall("RateLimit")) == (status, ['"api";r=1;t=30'])
            await answer.read()
        assert await statuses(client, 2, path, method, allow_redirects=False) == [status, 429]


@awaited
async def test_a_limit_is_of_the_route_not_of_the_url():
    """Path parameters share one count; HEAD is counted with GET; another handler of the path has its own."""

    @limited("3/minute")
    async def read(request: web.Request) -> web.Response:
        return web.Response(text=request.match_info["id"])

    @limited("1/minute")
    async def write(request: web.Request) -> web.Response:
        return web.Response(text="written")

    routes = web.get("/items/{id}", read), web.post("/items/{id}", write), web.get(r"/other/{id:\d+}", read)
    async with served(site(*routes)) as client:
        assert await statuses(client, 1, "/items/1") == [200]
        assert await statuses(client, 1, "/items/2", "HEAD") == [200]
        assert await statuses(client, 2, "/items/3?page=2") == [200, 429]
        assert await statuses(client, 2, "/items/4", "POST") == [200, 429]
        assert await statuses(client, 1, "/other/4") == [200]


@awaited
async def test_a_slash_that_is_escaped_within_a_segment_escapes_no_rule():
    """aiohttp routes `/search/a%2Fb` as `/search/{word}`, and `/files/a%2Fb` as if the slash were not escaped."""
    search = {"name": "search", "match": {"path": "/search/{word}"}, "key": {"param": "word"}, "limits": "1/hour"}
    secret = {"name": "secret", "match": {"path": "/files/secret/*"}, "key": "everyone", "limits": "1/hour"}
    routes = web.get("/search/{word}", hello), web.get("/files/{rest:.+}", hello)
    async with served(site(*routes, policy={"rules": [search, secret]})) as client:
        asked = ("/search/a%2Fb", "/search/a%2fb", "/search/a%2Fc", "/files/secret%2Fa", "/files/secret/b", "/no%2Fway")
        found = [await statuses(client, 1, yarl.URL(path, encoded=True)) for path in asked]
        assert found == [[200], [429], [200], [200], [429], [404]]


async def login(request: web.Request) -> web.Response:
    """What the query asks for, returned or raised."""
    if "raise" in request.query:
        raise {"401": web.HTTPUnauthorized, "404": web.HTTPNotFound, "500": LookupError}[request.query["raise"]]
    return web.Response(status=int(request.query["return"]))


@awaited
async def test_a_handler_that_forgets_its_answer_has_failed(caplog):
    """It counts as 500, which is what is sent."""
    caplog.set_level(logging.CRITICAL)
    failing: Any = limited("2/minute", count={"when": {"status": "5xx"}})(functools.partial(nothing))
    async with served(site(web.get("/", failing))) as client:
        assert await statuses(client, 3) == [500, 500, 429]


@pytest.mark.parametrize("by", ["policy", "handler"])
@awaited
async def test_only_wrong_passwords_count(by, caplog):
    """The status decides, whether the answer was returned or raised."""
    caplog.set_level(logging.CRITICAL)
    rule: dict[str, Any] = {"key": "ip", "limits": "2/minute", "count": WRONG}
    handler = limited("2/minute", count=WRONG)(functools.partial(login)) if by == "handler" else login
    app = site(web.get("/login", handler), policy={"rules": [rule]} if by == "policy" else None)
    async with served(app) as client:
        for answer in ("return=200", "raise=404", "raise=500", "return=200"):
            assert await statuses(client, 3, f"/login?{answer}") == [int(answer[-3:])] * 3
        assert await statuses(client, 1, "/login?raise=401") == [401]
        assert await statuses(client, 2, "/login?return=401") == [401, 429]


@awaited
async def test_a_client_that_goes_away_is_not_counted():
    """A handler that is cancelled gives back what was reserved for its answer."""
    began, cancelled = asyncio.Semaphore(0), asyncio.Semaphore(0)

    @limited("1/minute", count={"when": {"status": 200}})
    async def slow(request: web.Request) -> web.Response:
        if "slow" in request.query:
            began.release()
            try:
                await asyncio.sleep(60)
            finally:
                cancelled.release()
        return web.Response()

    async with served(site(web.get("/", slow)), Cancelling) as client:
        for _ in range(3):
            asking = asyncio.create_task(statuses(client, 1, "/?slow"))
            await asyncio.wait_for(began.acquire(), 10)
            asking.cancel()
            await asyncio.wait_for(cancelled.acquire(), 10)
        assert await statuses(client, 2) == [200, 429]


@awaited
async def test_the_handler_of_a_client_that_is_gone_already_is_limited_too():
    """A client whose connection is lost before its request is examined still has an address, and so a limit."""
    looked, called = asyncio.Semaphore(0), []

    @web.middleware
    async def wait_until_gone(request: web.Request, handler: Handler) -> web.StreamResponse:
        while request.transport is not None:
            await asyncio.sleep(0.001)
        try:
            return await handler(request)
        finally:
            looked.release()

    async def handler(request: web.Request) -> web.Response:
        called.append(request.path)
        return web.Response()

    app = site(web.get("/", handler), policy=POLICY)
    app.middlewares.insert(0, wait_until_gone)
    runner = web.AppRunner(app)  # which cancels nobody, unlike the server for tests
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    for _ in range(4):
        _, writer = await asyncio.open_connection(*runner.addresses[0])
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        await asyncio.wait_for(looked.acquire(), 10)
    await runner.cleanup()
    assert len(called) == 2


@pytest.mark.parametrize("bound", [False, True])
@awaited
async def test_the_peer_of_a_unix_socket_is_a_proxy_or_nobody(bound):
    """A socket whose own end has a name is no exception."""
    app = site(default="1/minute", trusted_proxies=["unix"])
    runner = web.AppRunner(app)
    await runner.setup()
    with tempfile.TemporaryDirectory() as short:
        path = os.path.join(short, "s")
        await web.UnixSite(runner, path).start()
        found = []
        for at, claimed in enumerate(("203.0.113.1", "203.0.113.1", "203.0.113.2")):
            with socket.socket(socket.AF_UNIX) as end:
                if bound:
                    end.bind(os.path.join(short, f"c{at}"))
                end.connect(path)
                reader, writer = await asyncio.open_unix_connection(sock=end)
                writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: %b\r\n\r\n" % claimed.encode())
                found.append(int((await reader.readline()).split()[1]))
                writer.close()
                await writer.wait_closed()
        await runner.cleanup()
    assert found == [200, 429, 200]


async def chat(request: web.Request) -> web.WebSocketResponse:
    """Says everything twice."""
    ws = web.WebSocketResponse()
    await ws.prepare(request)
    async for message in ws:
        await ws.send_str(message.data * 2)
    return ws


async def opened(client: Client, path: str = "/") -> int:
    """The status of a handshake."""
    try:
        async with client.ws_connect(path) as ws:
            await ws.send_str("ha")
            assert await ws.receive_str(timeout=10) == "haha"
            return 101
    except aiohttp.WSServerHandshakeError as refused:
        return refused.status


@awaited
async def test_a_store_that_was_opened_here_is_closed_with_the_app(monkeypatch):
    """A store that the app brings stays open."""
    closed: list[int | None] = []

    class Noted(MemoryStore):
        def close(self) -> None:
            closed.append(self.max_keys)

    monkeypatch.setattr("headgate.stores.MemoryStore", Noted)
    app = site(web.get("/", hello), default="1/minute", store="memory://?max_keys=10")
    app.add_subapp("/in", site(web.get("/", hello), store=Noted(max_keys=20)))
    async with served(app) as client:
        assert await statuses(client, 2) == [200, 429]
    assert closed == [10]


def in_a_thread(call: Callable[[], Any]) -> Any:
    """What a call gives in a thread that is not the main one, where no module runs and no event loop is."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(call).result()


@awaited
async def test_limits_can_be_made_in_any_thread():
    """As tests and servers do that run an app beside another; each app's limits are its own."""
    outer = in_a_thread(lambda: site(web.get("/", hello), default="2/minute"))
    outer.add_subapp("/inner", in_a_thread(lambda: site(web.get("/", hello), default="1/minute")))
    async with served(outer) as client:
        paths = ["/", "/", "/", "/inner/", "/inner/"]
        assert [(await client.get(path)).status for path in paths] == [200, 200, 429, 200, 429]
