"""Clients that leave while a body is sent: what its generator tells in the end counts, and else the estimate stays."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from flask import Flask, Response, g, stream_with_context

from headgate import Policy
from headgate.web import flask
from tests.support.edges import still
from tests.support.servers import wait_until
from tests.support.serving import UVICORN, UnixConnection, serving
from tests.support.streaming_app import REAL, RULE, build

pytestmark = pytest.mark.engineless

LEFT = {"/": 1000 - REAL, "/silent": 500}
"""What is left after one request whose client has gone."""


def urls(kind: str, tmp_path: Any, request: Any) -> str:
    """The URL of a store; on a busy machine its answers may be late."""
    if kind == "sqlite":
        return f"sqlite://{tmp_path}/limits.db?deadline=5"
    return f"{request.getfixturevalue('server').url}?deadline=5&connect_timeout=5"


def scope_of(path: str, version: str) -> dict[str, Any]:
    return {
        "type": "http", "asgi": {"version": "3.0", "spec_version": version}, "http_version": "1.1", "method": "GET",
        "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "", "headers": [],
        "client": ("203.0.113.7", 1), "server": ("x", 80), "scheme": "http", "state": {},
    }  # fmt: skip


def leaving(app: Any, path: str, how: str) -> Callable[[], Any]:
    """A request whose client goes away after some pieces of the body."""
    sent: list[Any] = []
    gone = asyncio.Event()

    async def send(message: Any) -> None:
        sent.append(message)
        if len(sent) > 3:
            gone.set()
            if how == "send raises":
                raise OSError("the client has gone")
            await asyncio.sleep(0)

    async def receive() -> Any:
        await gone.wait()
        return {"type": "http.disconnect"}

    async def ask() -> None:
        task = asyncio.ensure_future(app(scope_of(path, "2.4" if how == "send raises" else "2.3"), receive, send))
        if how == "cancelled":
            await gone.wait()
            task.cancel()
        await asyncio.wait([task], timeout=60)
        assert task.done()
        if not task.cancelled():
            task.exception()  # as a server does: an error that nobody has seen is logged, and kept with its frames

    return ask


@pytest.mark.parametrize("how", ["send raises", "told", "cancelled"])
@pytest.mark.parametrize("path", LEFT)
@pytest.mark.parametrize("kind", ["memory", "redis", "sqlite"])
def test_a_stream_that_is_left_settles(kind, path, how, tmp_path, request):
    """Whether the server raises, tells of it, or cancels the app; and whether the store has to be awaited or not."""
    store: Any = still() if kind == "memory" else urls(kind, tmp_path, request)

    async def story() -> int:
        app, limits = build(store=store)
        await leaving(app, path, how)()
        for _ in range(200):  # the loop ends a generator when Python frees it, and the charge follows
            gc.collect()  # an error that left the app may hold its frames, and so the generator
            left = (await limits.apeek("tokens")).remaining
            if left == LEFT[path] and path == "/":
                break
            await asyncio.sleep(0.01 if path == "/" else 0.001)
        await limits.aclose()
        return left or 0

    assert asyncio.run(story()) == LEFT[path]


@pytest.mark.parametrize("path", LEFT)
@pytest.mark.parametrize("kind", ["redis", "sqlite"])
def test_a_real_server_settles_what_its_client_has_left(kind, path, tmp_path, request):
    """Uvicorn, and a client that closes its socket in the middle of a body."""
    url = urls(kind, tmp_path, request)
    with serving(tmp_path, *UVICORN, "tests.support.streaming_app:app", STORE=url) as served:
        connection = UnixConnection(served.path)
        connection.request("GET", path)
        assert len(connection.getresponse().read(50_000)) == 50_000
        connection.close()
        with Policy({"rules": [RULE]}).bind(url) as limits:
            wait_until(lambda: limits.peek("tokens").remaining == LEFT[path], "the charge is settled", 60)


def test_a_body_that_wsgi_closes_settles():
    """A server calls `close()` of a body whose client has gone, which ends its generator."""
    app = Flask("site")
    limits = flask.RateLimits(app, {"rules": [RULE]}, store=still())

    @app.get("/")
    def endless() -> Response:
        def pieces() -> Iterator[bytes]:
            try:
                while True:
                    yield b"x"
            finally:
                g.rate_limit.settle(tokens=REAL)

        return Response(stream_with_context(pieces()))

    answer = app.test_client().get("/", buffered=False)
    assert next(iter(answer.response)) == b"x"
    assert limits.peek("tokens").remaining == 500
    answer.close()
    assert limits.peek("tokens").remaining == 1000 - REAL
