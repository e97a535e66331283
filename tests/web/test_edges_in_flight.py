"""What is in flight at every edge: held while a request is under way, free when it is over, however it ends."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from fastapi import FastAPI
from flask import Flask, Response
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route, WebSocketRoute

from headgate.web import aiohttp, asgi, django, fastapi, flask, starlette, wsgi
from headgate.web.django.testing import override
from tests.support.django_site import LIMITS  # which sets Django up
from tests.support.edges import environ, exchange, get, scope
from tests.support.grpc_servers import ended, serving

from django.http import HttpResponse, StreamingHttpResponse  # isort: skip
from django.test import AsyncClient, Client, override_settings  # isort: skip
from django.urls import path  # isort: skip

pytestmark = pytest.mark.engineless

ONE: dict[str, Any] = {"rules": [{"name": "one", "key": "ip", "limits": "1 in flight"}]}
LIMIT = "1 in flight"
POLICY = '"one";q=1;qu="concurrent-requests"'
SEEN: list[int] = []
"""What was answered to those who came while another was under way."""


@pytest.fixture(autouse=True)
def nobody() -> None:
    SEEN.clear()


class TestASGI:
    """The middleware alone, and limits at the endpoints of Starlette and FastAPI."""

    def test_the_second_is_refused_until_the_first_is_over(self):
        async def app(scope: Any, receive: Any, send: Any) -> None:
            if scope["path"] == "/slow":
                await look()
            await send({"type": "http.response.start", "status": 200, "headers": []})
            if scope["path"] == "/slow":
                await look()
            await send({"type": "http.response.body", "body": b"done"})

        async def look() -> None:
            refused = await get(gate)
            SEEN.append(refused.status)
            assert "retry-after" not in refused.fields
            assert refused.fields["ratelimit-policy"] == POLICY
            assert refused.fields["ratelimit"] == '"one";r=0'

        gate = asgi.RateLimitMiddleware(app, ONE)
        answer = asyncio.run(get(gate, "GET", "/slow"))
        assert (answer.status, SEEN) == (200, [429, 429])
        assert asyncio.run(get(gate)).status == 200

    @pytest.mark.parametrize("late", [False, True])
    def test_an_app_that_raises_is_over(self, late):
        async def app(scope: Any, receive: Any, send: Any) -> None:
            if late:
                await send({"type": "http.response.start", "status": 200, "headers": []})
            raise LookupError

        gate = asgi.RateLimitMiddleware(app, ONE)
        for _ in range(3):
            with pytest.raises(LookupError):
                asyncio.run(get(gate))

    def test_a_request_that_is_cancelled_is_over(self):
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
        async def app(scope: Any, receive: Any, send: Any) -> None:
            SEEN.extend([(await receive())["type"] == "websocket.receive" for _ in range(4)])

        rule = {"name": "one", "key": "ip", "limits": LIMIT, "match": {"method": "MESSAGE"}}
        gate = asgi.RateLimitMiddleware(app, {"rules": [rule]})
        messages = [{"type": "websocket.connect"}, *({"type": "websocket.receive", "text": "hi"} for _ in range(3))]
        asyncio.run(exchange(gate, scope(type="websocket"), *messages))
        assert SEEN == [False, True, True, True]

    @pytest.mark.parametrize("kind", ["starlette", "fastapi", "default"])
    def test_endpoints_hold_until_their_last_byte(self, kind):
        @starlette.limited(LIMIT)
        async def slow(request: Any) -> StreamingResponse:
            SEEN.append((await get(app)).status)
            return StreamingResponse(pieces())

        async def plain(request: Any) -> StreamingResponse:
            return await slow.__wrapped__(request)  # type: ignore[no-any-return]

        async def pieces() -> AsyncIterator[str]:
            yield "a"
            SEEN.append((await get(app)).status)
            yield "b"

        def over(request: Any) -> PlainTextResponse:
            return PlainTextResponse("over")

        app: Any
        if kind == "fastapi":
            app = FastAPI(openapi_url=None)
            fastapi.RateLimits(app)

            @app.get("/")
            @fastapi.limited(LIMIT)
            async def endpoint() -> StreamingResponse:
                if len(SEEN) == 0:
                    SEEN.append((await get(app)).status)
                return StreamingResponse(pieces() if len(SEEN) == 1 else iter(["over"]))

        else:
            app = Starlette(routes=[Route("/", slow if kind == "starlette" else plain)])
            starlette.RateLimits(app, default=LIMIT if kind == "default" else None)
        answer = asyncio.run(get(app))
        assert (answer.status, answer.body, SEEN) == (200, b"ab", [429, 429])
        SEEN[:] = [0] * 2
        assert asyncio.run(get(app)).status == 200

    def test_an_endpoint_of_a_websocket_holds_until_it_is_closed(self):
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

    def test_an_app_that_raises_is_over(self):
        def app(environ: Any, start_response: Any) -> Iterator[bytes]:
            raise LookupError

        gate = wsgi.RateLimitMiddleware(app, ONE)
        for _ in range(3):
            with pytest.raises(LookupError):
                wsgi_get(gate)


class TestFlask:
    @pytest.fixture(params=["policy", "limited"])
    def app(self, request):
        """An app whose views look at themselves."""
        app = Flask("shop")
        flask.RateLimits(app, ONE if request.param == "policy" else None)
        guard = (lambda view: view) if request.param == "policy" else flask.limited(LIMIT, key="everyone")

        def slow() -> str:
            SEEN.append(app.test_client().get("/slow").status_code)
            return "slow"

        def broken() -> str:
            raise LookupError

        def stream() -> Response:
            return Response(f"{each}" for each in range(2))

        for view in (slow, broken, stream):
            app.add_url_rule(f"/{view.__name__}", view.__name__, guard(view))
        return app

    def test_the_second_is_refused_until_the_first_is_over(self, app):
        client = app.test_client()
        for _ in range(2):
            assert client.get("/slow").status_code == 200
        assert SEEN == [429, 429]

    def test_a_view_that_raises_is_over(self, app):
        client = app.test_client()
        assert [client.get("/broken").status_code for _ in range(2)] == [500, 500]

    def test_a_stream_is_in_flight_until_it_is_closed(self, app):
        client = app.test_client()
        first = client.get("/stream", buffered=False)
        assert (first.status_code, client.get("/stream").status_code) == (200, 429)
        first.close()
        with client.get("/stream") as again:
            assert (again.status_code, again.data) == (200, b"01")
        assert client.get("/stream").status_code == 200


@django.limited(LIMIT)
def django_slow(request: Any) -> HttpResponse:
    SEEN.append(Client().get("/slow/").status_code)
    return HttpResponse("slow")


@django.limited(LIMIT)
async def django_async(request: Any) -> HttpResponse:
    SEEN.append((await AsyncClient().get("/async/")).status_code)
    return HttpResponse("slow")


@django.limited(LIMIT)
def django_broken(request: Any) -> HttpResponse:
    raise LookupError


@django.limited(LIMIT)
def django_stream(request: Any) -> StreamingHttpResponse:
    return StreamingHttpResponse(iter(["a", "b"]))


urlpatterns = [
    path("slow/", django_slow),
    path("async/", django_async),
    path("broken/", django_broken),
    path("stream/", django_stream),
]


class TestDjango:
    @pytest.fixture(autouse=True)
    def site(self):
        """These views alone."""
        with override_settings(ROOT_URLCONF=__name__, MIDDLEWARE=[LIMITS]), override(default=None, policy=None):
            yield

    def test_the_second_is_refused_until_the_first_is_over(self):
        assert [Client().get("/slow/").status_code for _ in range(2)] == [200, 200]
        assert SEEN == [429, 429]

    def test_an_async_view_too(self):
        async def story() -> list[int]:
            return [(await AsyncClient().get("/async/")).status_code for _ in range(2)]

        assert asyncio.run(story()) == [200, 200]
        assert SEEN == [429, 429]

    def test_a_view_that_raises_is_over(self):
        client = Client(raise_request_exception=False)
        assert [client.get("/broken/").status_code for _ in range(2)] == [500, 500]

    def test_a_stream_is_in_flight_until_it_is_closed(self):
        first = Client().get("/stream/")
        assert (first.status_code, Client().get("/stream/").status_code) == (200, 429)
        assert b"".join(first.streaming_content) == b"ab"
        first.close()
        assert Client().get("/stream/").status_code == 200


class TestAiohttp:
    @pytest.mark.parametrize("by", ["policy", "limited", "default"])
    def test_the_second_is_refused_until_the_first_is_over(self, by):
        async def slow(request: web.Request) -> web.Response:
            SEEN.append((await client.get("/")).status)
            if len(SEEN) > 2:
                raise LookupError
            return web.Response(text="slow")

        app = web.Application()
        aiohttp.RateLimits(app, ONE if by == "policy" else None, default=LIMIT if by == "default" else None)
        app.router.add_get("/", aiohttp.limited(LIMIT)(slow) if by == "limited" else slow)
        client: Any = None

        async def story() -> list[int]:
            nonlocal client
            async with TestClient(TestServer(app)) as client:
                return [(await client.get("/")).status for _ in range(4)]

        assert asyncio.run(story()) == [200, 200, 500, 500]
        assert SEEN == [429] * 4


@pytest.mark.parametrize("kind", ["threads", "loop", "reading"])
@pytest.mark.parametrize("method", ["Unary", "Stream"])
def test_a_call_is_in_flight_until_it_has_ended(kind, method):
    with serving(kind, ONE) as server:
        first = server.begin(method, b"wait")
        assert server.echo.inside.acquire(timeout=10)
        refused = server.ask(method, b"hi")
        assert (refused.code.name, "grpc-retry-pushback-ms" in refused.trailing) == ("RESOURCE_EXHAUSTED", False)
        server.echo.gate.set()
        assert ended(first, method).code.name == "OK"
        assert server.codes(2, method, b"raise") == ["UNKNOWN"] * 2
        with contextlib.suppress(Exception):
            server.ask(method, b"abort ABORTED")
        assert server.codes(1, method, b"hi") == ["OK"]
