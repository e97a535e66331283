"""Litestar and Quart behind the ASGI middleware: their errors, their streams, their websockets."""

from __future__ import annotations

import asyncio
import importlib
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
from litestar import Litestar, Request, WebSocket, get, websocket
from litestar.datastructures import State
from litestar.exceptions import NotAuthorizedException, WebSocketDisconnect
from litestar.middleware import DefineMiddleware
from litestar.response import Stream
from litestar.testing import TestClient
from quart import Quart, abort
from quart import request as quart_request
from quart import websocket as quart_websocket
from quart.testing.connections import WebsocketResponseError

from headgate.web.asgi import RateLimitMiddleware
from tests.support import ROOT
from tests.support.awaiting import awaited
from tests.support.edges import PEER, exchange, scope, still

pytestmark = pytest.mark.engineless

PIECES = [bytes([at]) * at for at in range(100)]
POLICY = {
    "rules": [
        {"name": "items", "match": {"path": "/items/{id}"}, "key": ["ip", {"constant": "items"}], "limits": "2/hour"},
        {"name": "errors", "match": {"path": "/boom"}, "key": "ip", "limits": "9/hour"},
        {"name": "stream", "match": {"path": "/stream"}, "key": "ip", "limits": "1/hour"},
        {
            "name": "login", "match": {"path": "/login"}, "key": "ip", "limits": "2/hour",
            "count": {"when": {"status": [401]}},
        },
        {"name": "opened", "match": {"path": "/ws", "method": "WEBSOCKET"}, "key": "ip", "limits": "2/hour"},
        {"name": "said", "match": {"path": "/ws", "method": "MESSAGE"}, "key": "ip", "limits": "3/hour"},
    ]
}  # fmt: skip


# Litestar


@get("/items/{number:int}")
async def item(request: Request[Any, Any, State]) -> int:
    return int(request.path_params["number"])


@get("/boom", sync_to_thread=True)
def boom() -> None:
    raise RuntimeError


@get("/login")
async def login(request: Request[Any, Any, State]) -> str:
    if request.query_params["password"] != "right":
        raise NotAuthorizedException
    return "welcome"


@get("/stream")
async def stream() -> Stream:
    async def pieces() -> AsyncIterator[bytes]:
        for piece in PIECES:
            yield piece

    return Stream(pieces())


@websocket("/ws")
async def echo(socket: WebSocket[Any, Any, State]) -> None:
    await socket.accept()
    async for text in socket.iter_data("text"):
        await socket.send_data(text)


def litestar(**options: Any) -> tuple[RateLimitMiddleware, TestClient[Any]]:
    """The whole app behind one line."""
    app: Any = Litestar([item, boom, login, stream, echo], logging_config=None)
    limited = RateLimitMiddleware(app, POLICY, **{"store": still(), **options})
    return limited, TestClient(limited, raise_server_exceptions=False)


def test_litestar_tells_refuses_and_streams():
    """The pattern of the policy counts; errors tell too; a stream is the app's own, byte for byte."""
    _, client = litestar()
    with client:
        answer = client.get("/items/1")
        assert (answer.json(), answer.headers["ratelimit"]) == (1, '"items";r=1;t=1800')
        assert [client.get(f"/items/{at}").status_code for at in (2, 3)] == [200, 429]
        assert client.get("/items/4").json()["violated-policies"] == ["items"]
        answer = client.get("/boom")
        assert (answer.status_code, answer.headers["ratelimit"]) == (500, '"errors";r=8;t=400')
        assert client.get("/stream").content == b"".join(PIECES)
        assert client.get("/stream").status_code == 429
        assert "ratelimit" not in client.get("/nowhere").headers


def test_litestar_counts_what_its_responses_say():
    """A client with the right password is charged nothing."""
    _, client = litestar()
    with client:
        codes = [client.get(f"/login?password={word}").status_code for word in ["right"] * 5 + ["wrong"] * 3]
    assert codes == [200] * 5 + [401, 401, 429]


def test_litestar_websockets_and_their_messages_are_counted():
    """A message too many closes; a connection too many is not opened."""
    _, client = litestar()
    with client:
        with client.websocket_connect("/ws") as socket:
            for text in ("a", "b", "c"):
                socket.send_text(text)
                assert socket.receive_text() == text
            socket.send_text("d")
            with pytest.raises(WebSocketDisconnect) as closed:
                socket.receive_text(timeout=5)
            assert closed.value.code == 1008
        with client.websocket_connect("/ws"):
            pass
        with pytest.raises(WebSocketDisconnect), client.websocket_connect("/ws", timeout=5):
            pass


def test_litestars_own_middleware_needs_a_store_that_is_shared():
    """It makes the middleware anew for each handler: each has a memory of its own, unless it is given one."""
    rule = {"name": "all", "key": "ip", "limits": "1/hour"}
    kept = still()
    for given, expected in (({}, [200, 200]), ({"store": kept}, [200, 429])):
        middleware = DefineMiddleware(RateLimitMiddleware, policy={"rules": [rule]}, **given)
        with TestClient(Litestar([item, login], middleware=[middleware], logging_config=None)) as client:
            codes = [client.get(path).status_code for path in ("/items/1", "/login?password=right")]
            assert codes == expected


def test_litestars_example_in_the_documentation_runs(tmp_path, monkeypatch):
    """It is no python block there: Litestar looks for the module that a handler is from."""
    page = (ROOT / "docs/web/running.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```text\n(from litestar [^`]*)^```$", page, re.MULTILINE)
    (tmp_path / "policy.yaml").write_text("rules: [{key: ip, limits: 1/4 weeks}]\n")
    example = example.replace("shared:///dev/shm/api", "memory://")
    imports = "from headgate.web.asgi import RateLimitMiddleware\n"
    (tmp_path / "litestar_example.py").write_text(imports + example)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    app: Any = importlib.import_module("litestar_example").app
    with TestClient(app) as client:
        assert [client.get("/").status_code for _ in range(2)] == [200, 429]


# Quart


def quart(**options: Any) -> Quart:
    """The same app, with its own line."""
    app = Quart("app")

    @app.get("/items/<int:number>")
    async def number(number: int) -> str:
        return str(number)

    @app.get("/boom")
    def broken() -> str:
        raise RuntimeError

    @app.get("/login")
    async def login() -> str:
        if quart_request.args["password"] != "right":
            abort(401)
        return "welcome"

    @app.get("/stream")
    async def streamed() -> Any:
        async def pieces() -> AsyncIterator[bytes]:
            for piece in PIECES:
                yield piece

        return pieces(), 200, {"content-type": "application/octet-stream"}

    @app.websocket("/ws")
    async def echoing() -> None:
        while True:
            await quart_websocket.send(await quart_websocket.receive())

    limited: Any = RateLimitMiddleware(app.asgi_app, POLICY, **{"store": still(), **options})
    app.asgi_app = limited  # type: ignore[method-assign]
    return app


FROM = {"client": (PEER, 4711)}
"""Quart's test client has no address otherwise."""

OPENS = {**FROM, "method": "WEBSOCKET"}
"""And a method where a server gives none."""


async def codes(app: Quart, *paths: str) -> list[int]:
    client = app.test_client()
    return [(await client.get(path, scope_base=FROM)).status_code for path in paths]


TARGETS = ["/items/1", "http://a.org/items/1", "http://a.org/items/1;a?b#c", "http:items/1", "items/1;a"]


@pytest.mark.parametrize("target", TARGETS)
def test_quart_routes_the_path_of_an_absolute_target_and_rules_match_it(target):
    """`GET http://a.org/items/1 HTTP/1.1`, which uvicorn hands over as a path."""

    async def story() -> list[int]:
        app, more = quart(), {"http_version": "1.1", "scheme": "http", "root_path": ""}
        begun = {"type": "http.request", "body": b"", "more_body": False}
        asked = [{**scope("GET", target), **more} for _ in range(3)]
        return [(await exchange(app, each, begun))[0]["status"] for each in asked]

    assert asyncio.run(story()) == [200, 200, 429]


@awaited
async def test_quart_tells_refuses_and_streams():
    """The pattern of the policy counts; errors tell too; a stream is the app's own, byte for byte."""
    app = quart()
    app.config["PROPAGATE_EXCEPTIONS"] = False
    client = app.test_client()
    answer = await client.get("/items/1", scope_base=FROM)
    assert (await answer.get_data(), answer.headers["ratelimit"]) == (b"1", '"items";r=1;t=1800')
    assert await codes(app, "/items/2", "/items/3") == [200, 429]
    assert (await (await client.get("/items/4", scope_base=FROM)).get_json(force=True))["violated-policies"] == [
        "items"
    ]
    answer = await client.get("/boom", scope_base=FROM)
    assert (answer.status_code, answer.headers["ratelimit"]) == (500, '"errors";r=8;t=400')
    answer = await client.get("/stream", scope_base=FROM)
    assert (answer.status_code, await answer.get_data()) == (200, b"".join(PIECES))
    assert await codes(app, "/stream", "/nowhere") == [429, 404]


@awaited
async def test_quart_counts_what_its_responses_say():
    """Ten at once are two attempts."""
    app = quart()
    assert await codes(app, *["/login?password=right"] * 5) == [200] * 5
    tries = await asyncio.gather(*(codes(app, "/login?password=wrong") for _ in range(10)))
    assert sorted(tries) == [[401]] * 2 + [[429]] * 8


async def is_closed(socket: Any) -> bool:
    """Whether a connection of Quart's test client is over: before 0.23 it raises, since then the app just ends."""
    receiving = asyncio.ensure_future(socket.receive())
    done, _ = await asyncio.wait({receiving, socket._task}, timeout=5, return_when=asyncio.FIRST_COMPLETED)
    receiving.cancel()
    return socket._task in done or (receiving in done and receiving.exception() is not None)


@awaited
async def test_quart_websockets_and_their_messages_are_counted():
    """A message too many closes; a connection too many is not opened."""
    client = quart().test_client()
    async with client.websocket("/ws", scope_base=OPENS) as socket:
        for text in ("a", "b", "c"):
            await socket.send(text)
            assert await socket.receive() == text
        await socket.send("d")
        assert await is_closed(socket)
    async with client.websocket("/ws", scope_base=OPENS) as socket:
        await socket.send("e")
        assert await is_closed(socket)
    with pytest.raises(WebsocketResponseError) as refused:
        async with client.websocket("/ws", scope_base=OPENS) as socket:
            await socket.send("")  # servers send a connect first, Quart's test client does not
            await asyncio.wait_for(socket.receive(), 5)
    assert (refused.value.response.status_code, refused.value.response.headers["retry-after"]) == (429, "1800")
