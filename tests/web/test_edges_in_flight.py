"""What is in flight at every edge: held while a request is under way, free when it is over, however it ends."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from flask import Flask, Response
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute

from headgate.web import asgi, flask, starlette, wsgi
from tests.support.edges import environ, exchange, get, scope

pytestmark = pytest.mark.engineless

ONE: dict[str, Any] = {"rules": [{"name": "one", "key": "ip", "limits": "1 in flight"}]}
LIMIT = "1 in flight"


SEEN: list[int] = []
"""The statuses of requests that came while another one was in flight."""


@pytest.fixture(autouse=True)
def nobody() -> None:
    SEEN.clear()


class TestASGI:
    """The middleware alone, and limits at the endpoints of Starlette and FastAPI."""

    @pytest.mark.parametrize("late", [False, True])
    def test_an_app_that_raises_is_over(self, late):
        """An exception before the response or during it ends the request."""

        async def app(scope: Any, receive: Any, send: Any) -> None:
            if late:
                await send({"type": "http.response.start", "status": 200, "headers": []})
            raise LookupError

        gate = asgi.RateLimitMiddleware(app, ONE)
        for _ in range(3):
            with pytest.raises(LookupError):
                asyncio.run(get(gate))

    def test_a_request_that_is_cancelled_is_over(self):
        """Three cancelled requests, one after the other, are admitted each."""

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await asyncio.sleep(30)

        async def story() -> list[bool]:
            cancelled = []
            for _ in range(3):
                asked = asyncio.ensure_future(get(gate))
                await asyncio.sleep(0)
                asked.cancel()
                cancelled.append(isinstance((await asyncio.gather(asked, return_exceptions=True))[0], BaseException))
            return cancelled

        gate = asgi.RateLimitMiddleware(app, ONE)
        assert asyncio.run(story()) == [True] * 3

    def test_a_websocket_is_in_flight_until_it_is_closed(self):
        """A request beside an open websocket is refused, and one after it passes."""

        async def app(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "websocket":
                SEEN.append((await get(gate)).status)
            else:
                await send({"type": "http.response.start", "status": 200, "headers": []})
                await send({"type": "http.response.body", "body": b""})

        gate = asgi.RateLimitMiddleware(app, ONE)
        for _ in range(2):
            asyncio.run(exchange(gate, scope(type="websocket"), {"type": "websocket.connect"}))
        assert SEEN == [429, 429]
        assert asyncio.run(get(gate)).status == 200

    def test_each_message_is_in_flight_only_until_it_is_handed_over(self):
        """Three messages, one after the other, pass a limit of one."""

        async def app(scope: Any, receive: Any, send: Any) -> None:
            SEEN.extend([(await receive())["type"] == "websocket.receive" for _ in range(4)])

        rule = {"name": "one", "key": "ip", "limits": LIMIT, "match": {"method": "MESSAGE"}}
        gate = asgi.RateLimitMiddleware(app, {"rules": [rule]})
        messages = [{"type": "websocket.connect"}, *({"type": "websocket.receive", "text": "hi"} for _ in range(3))]
        asyncio.run(exchange(gate, scope(type="websocket"), *messages))
        assert SEEN == [False, True, True, True]

    def test_an_endpoint_of_a_websocket_holds_until_it_is_closed(self):
        """The second websocket at an endpoint is closed, and one after the first is accepted."""

        @starlette.limited(LIMIT)
        async def talk(socket: Any) -> None:
            await socket.accept()
            if not SEEN:
                SEEN.append(0)
                sent = await exchange(app, scope(type="websocket"), {"type": "websocket.connect"})
                SEEN.append(sent[0]["type"] == "websocket.close")

        app = Starlette(routes=[WebSocketRoute("/", talk)])
        starlette.RateLimits(app)
        asyncio.run(exchange(app, scope(type="websocket"), {"type": "websocket.connect"}))
        assert SEEN == [0, True]
        sent = asyncio.run(exchange(app, scope(type="websocket"), {"type": "websocket.connect"}))
        assert sent[0]["type"] == "websocket.accept"


def wsgi_get(app: Callable[..., Any], **more: Any) -> tuple[int, Any]:
    """The status, and the body as the app gave it."""
    started: list[str] = []
    pieces = app(environ(**more), lambda status, headers, *_: started.append(status))
    return int(started[0][:3]), pieces


class TestWSGI:
    def test_a_response_is_in_flight_until_it_is_closed(self):
        """A response of WSGI that is not read to its end holds its permit until the server closes it."""

        def app(environ: Any, start_response: Any) -> Iterator[bytes]:
            start_response("200 OK", [])
            return iter([b"a", b"b"])

        gate = wsgi.RateLimitMiddleware(app, ONE)
        status, pieces = wsgi_get(gate)
        assert (status, wsgi_get(gate)[0]) == (200, 429)
        parts = iter(pieces)
        assert (next(parts), wsgi_get(gate)[0]) == (b"a", 429)
        pieces.close()
        status, pieces = wsgi_get(gate)
        assert (status, b"".join(pieces), wsgi_get(gate)[0]) == (200, b"ab", 200)


class TestFlask:
    @pytest.mark.parametrize("where", ["policy", "view"])
    def test_a_stream_is_in_flight_until_it_is_closed(self, where):
        """A stream of Flask that is not read to its end holds its permit until it is closed."""

        def stream() -> Response:
            return Response(f"{each}" for each in range(2))

        app = Flask("shop")
        flask.RateLimits(app, ONE if where == "policy" else None)
        view = stream if where == "policy" else flask.limited(LIMIT, key="everyone")(stream)
        app.add_url_rule("/stream", "stream", view)
        client = app.test_client()
        first = client.get("/stream", buffered=False)
        assert (first.status_code, client.get("/stream").status_code) == (200, 429)
        first.close()
        with client.get("/stream") as again:
            assert (again.status_code, again.data) == (200, b"01")
        assert client.get("/stream").status_code == 200


@pytest.mark.parametrize("kind", ["threads", "loop", "reading"])
@pytest.mark.parametrize("method", ["Unary", "Stream"])
def test_a_call_is_in_flight_until_it_has_ended(kind, method):
    """A call of gRPC holds its permit until it returns, raises or aborts; a refused one is told no wait."""
    grpc_servers = pytest.importorskip("tests.support.grpc_servers")
    with grpc_servers.serving(kind, ONE) as server:
        first = server.begin(method, b"wait")
        assert server.echo.inside.acquire(timeout=10)
        refused = server.ask(method, b"hi")
        assert (refused.code.name, "grpc-retry-pushback-ms" in refused.trailing) == ("RESOURCE_EXHAUSTED", False)
        server.echo.gate.set()
        assert grpc_servers.ended(first, method).code.name == "OK"
        assert server.codes(2, method, b"raise") == ["UNKNOWN"] * 2
        with contextlib.suppress(Exception):
            server.ask(method, b"abort ABORTED")
        assert server.codes(1, method, b"hi") == ["OK"]
