"""Starlette: endpoints of every kind."""

from __future__ import annotations

import asyncio
import functools
import gc
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.endpoints import HTTPEndpoint
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from headgate.errors import HeadgateError, InvalidCall
from headgate.web.starlette import exempt, limited
from tests.support.edges import asgi, scope
from tests.web.test_starlette import hello, names_in, serve

pytestmark = pytest.mark.engineless


def test_a_request_is_freed_without_the_garbage_collector():
    """The limits of a request refer to it only until it ends, so that no cycle is left behind."""
    asked: list[weakref.ref[Request]] = []

    @limited("1/hour")
    async def endpoint(request: Request) -> Response:
        asked.append(weakref.ref(request))
        return PlainTextResponse("hello")

    site = serve(Route("/", endpoint))
    gc.disable()
    try:
        assert asgi(site.app, "GET", "/").status == 200
        assert [each() for each in asked] == [None]
    finally:
        gc.enable()


def test_a_line_break_at_the_end_of_a_path_escapes_no_rule():
    """Starlette routes `/items/7%0A` as `/items/{number}`, so a rule for that path counts it, with the number 7."""

    async def endpoint(request: Request) -> Response:
        return PlainTextResponse(str(request.path_params["number"]))

    rule = {"match": {"path": "/items/{number}"}, "key": {"param": "number"}, "limits": "1/hour"}
    site = serve(Route("/items/{number:int}", endpoint), policy={"rules": [rule]})
    assert [asgi(site.app, "GET", f"/items/{text}").status for text in ("7", "7\n", "8\n", "8")] == [200, 429, 200, 429]


def test_endpoint_classes():
    """Decorated as a whole: every method counts; a subclass is what it is."""

    @limited("3/hour")
    class Base(HTTPEndpoint):
        async def get(self, request: Request) -> Response:
            return PlainTextResponse("base")

        def post(self, request: Request) -> Response:
            return PlainTextResponse(str(threading.get_ident()))

    @limited("2/hour", key="everyone")
    class Child(Base):
        async def get(self, request: Request) -> Response:
            return PlainTextResponse("child")

    site = serve(Route("/base", Base), Route("/child", Child), default="1/hour")
    answers = [site.client.get("/base"), site.client.post("/base"), site.client.put("/base"), site.client.get("/base")]
    assert [answer.status_code for answer in answers] == [200, 200, 405, 429]
    assert answers[0].text == "base" and int(answers[1].text) != threading.get_ident()
    assert site.client.get("/child").text == "child"
    assert names_in(site.client.get("/child").headers["ratelimit"]) == ['"child"', '"child-2"']
    assert site.codes("/child") == [429]


def test_methods_of_a_class_have_counts_of_their_own():
    """Decorated one by one."""

    class Items(HTTPEndpoint):
        @limited("1/hour")
        async def get(self, request: Request) -> Response:
            return PlainTextResponse("got")

        @limited("1/hour")
        def post(self, request: Request) -> Response:
            return PlainTextResponse("posted")

    site = serve(Route("/x", Items))
    assert [site.client.get("/x").text, site.client.post("/x").text] == ["got", "posted"]
    assert [site.client.get("/x").status_code, site.client.post("/x").status_code] == [429, 429]


def test_partials_methods_and_asgi_objects():
    """Whatever Starlette takes as an endpoint."""

    async def greet(greeting: str, request: Request) -> Response:
        return PlainTextResponse(greeting)

    class Service:
        async def greet(self, request: Request) -> Response:
            return PlainTextResponse("method")

        async def free(self, request: Request) -> Response:
            return PlainTextResponse("free")

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            await PlainTextResponse("object")(scope, receive, send)

    once = limited("1/hour")
    site = serve(
        Route("/partial", once(functools.partial(greet, "partial"))),
        Route("/around", functools.partial(once(greet), "around")),
        Route("/method", once(Service().greet)),
        Route("/object", once(limited("9/hour", key="everyone")(Service()))),
        Route("/free", exempt(Service().free)),
        default="1/hour",
    )
    for path in ("/partial", "/around", "/method", "/object"):
        answers = [site.client.get(path) for _ in range(2)]
        assert (answers[0].text, [answer.status_code for answer in answers]) == (path[1:], [200, 429])
    assert site.codes("/free", times=3) == [200] * 3
    assert site.app.url_path_for("Service") == "/object"


def test_what_cannot_be_limited_is_refused_where_it_is_written():
    """With what to do instead."""

    def stream(request: Request) -> Iterator[str]:
        yield ""

    class App: ...

    with pytest.raises(InvalidCall, match="write Depends"):
        limited("1/hour")(stream)
    with pytest.raises(InvalidCall, match="endpoint classes"):
        limited("1/hour")(App)


def test_an_endpoint_called_without_a_request_says_so():
    """As a test may do; what is inside has no limits."""
    endpoint: Any = limited("1/hour")(hello)
    with pytest.raises(HeadgateError, match="called without a request"):
        asyncio.run(endpoint())
    assert asyncio.run(endpoint.__wrapped__(Request(scope()))).body == b"hello"
