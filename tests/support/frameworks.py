"""Real frameworks behind a policy, asked with raw requests: what each of them sees under a name, by its usual calls.

Test clients tidy what they send. Here scopes and environs are written by hand, and servers get bytes through sockets.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import subprocess
import sys
import traceback
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from io import BytesIO
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import django.test
import uvicorn
from aiohttp import web
from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.wsgi import WSGIHandler
from django.http import JsonResponse
from django.urls import path
from fastapi import Cookie, FastAPI, Header, Query, Request
from flask import Flask
from flask import request as flask_request
from litestar import Litestar
from litestar import Request as LitestarRequest
from litestar import get as litestar_get
from litestar.datastructures import State
from quart import Quart
from quart import request as quart_request
from starlette.applications import Starlette
from starlette.requests import Request as StarletteRequest
from starlette.responses import JSONResponse
from starlette.routing import Route

import headgate
from headgate import MemoryStore
from headgate.web.aiohttp import RateLimits
from headgate.web.asgi import RateLimitMiddleware as Asgi
from headgate.web.flask import RateLimits as FlaskRateLimits
from headgate.web.wsgi import RateLimitMiddleware as Wsgi
from tests.support import django_site
from tests.support.edges import environ, read_answer, scope, still, wsgi
from tests.support.servers import free_port, wait_until

SERVED = "HEADGATE_TEST_POLICY"
"""The environment variable that has the policy of a server in a process of its own."""
Lines = tuple[tuple[bytes, bytes], ...]


class Sent(NamedTuple):
    """A request as a client writes it."""

    lines: Lines = ()
    query: bytes = b""
    target: bytes = b"/"
    """Through sockets only."""


class Seen(NamedTuple):
    """What came of it: a status, and by source what the app saw where it was asked."""

    status: int
    values: dict[str, str | None]
    body: bytes = b""


Ask = Callable[[Sent], Coroutine[Any, Any, Seen]]


def bearer(value: str | None) -> str | None:
    """A token as apps read it."""
    scheme, _, token = (value or "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def told(header: Any, query: Any, cookie: Any, authorization: str | None) -> dict[str, str | None]:
    return {"header": header, "query": query, "cookie": cookie, "token": bearer(authorization)}


# ASGI, by scopes


async def _starlette_app(request: StarletteRequest) -> JSONResponse:
    fields = request.headers
    seen = told(
        fields.get("x-key"), request.query_params.get("key"), request.cookies.get("key"), fields.get("authorization")
    )
    return JSONResponse(seen)


def starlette_app() -> Any:
    return Starlette(routes=[Route("/", _starlette_app)])


def fastapi_app() -> Any:
    app = FastAPI()

    @app.get("/")
    def read(
        request: Request,
        x_key: Annotated[str | None, Header()] = None,
        key: Annotated[str | None, Query()] = None,
        biscuit: Annotated[str | None, Cookie(alias="key")] = None,
        authorization: Annotated[str | None, Header()] = None,
    ) -> dict[str, str | None]:
        return told(x_key, key, biscuit, authorization)

    return app


def litestar_app() -> Any:
    @litestar_get("/")
    async def read(request: LitestarRequest[Any, Any, State]) -> dict[str, Any]:
        fields = request.headers
        return told(
            fields.get("x-key"),
            request.query_params.get("key"),
            request.cookies.get("key"),
            fields.get("authorization"),
        )

    return Litestar([read], openapi_config=None, logging_config=None)


def quart_app() -> Any:
    app = Quart(__name__)

    @app.get("/")
    async def read() -> dict[str, str | None]:
        asked = quart_request
        fields = asked.headers
        return told(fields.get("x-key"), asked.args.get("key"), asked.cookies.get("key"), fields.get("authorization"))

    return app


def as_scope(sent: Sent) -> dict[str, Any]:
    """As a server hands it over."""
    lines = [(b"host", b"localhost"), *((name.lower(), value.strip(b" \t")) for name, value in sent.lines)]
    more = {"headers": lines, "query_string": sent.query, "http_version": "1.1", "scheme": "http", "raw_path": b"/"}
    return {
        **scope(),
        "server": ("localhost", 80),
        "root_path": "",
        "asgi": {"version": "3.0"},
        "extensions": {},
        **more,
    }


def by_scope(app: Any) -> Ask:
    async def ask(sent: Sent) -> Seen:
        waiting = [{"type": "http.request", "body": b"", "more_body": False}]
        messages: list[dict[str, Any]] = []
        answered = asyncio.Event()

        async def receive() -> dict[str, Any]:
            if waiting:
                return waiting.pop()
            await answered.wait()  # the client waits for its answer, and goes away
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            messages.append(dict(message))
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                answered.set()

        try:
            await app(as_scope(sent), receive, send)
            answer = read_answer(messages)
        except UnicodeDecodeError as error:
            return _failed(error)
        except ExceptionGroup as several:  # of tasks, as newer versions of Quart raise it
            (alone,) = several.exceptions
            if not isinstance(alone, UnicodeDecodeError):
                raise
            return _failed(alone)
        return _read(answer.status, answer.body)

    return ask


def _failed(error: UnicodeDecodeError) -> Seen:
    """Some frameworks cannot read every request. That is theirs to mend, and nobody was served."""
    raised_in = Path(traceback.extract_tb(error.__traceback__)[-1].filename)
    assert Path(headgate.__file__).parent not in raised_in.parents
    return Seen(500, {})


def _read(status: int, body: bytes) -> Seen:
    return Seen(status, json.loads(body) if status == 200 else {}, body)


# WSGI, by environs


def flask_app() -> Flask:
    app = Flask(__name__)

    @app.get("/")
    def read() -> dict[str, str | None]:
        asked = flask_request
        fields = asked.headers
        return told(fields.get("x-key"), asked.args.get("key"), asked.cookies.get("key"), fields.get("authorization"))

    return app


def as_environ(sent: Sent) -> dict[str, Any]:
    """As a server hands it over: the lines of a name as one."""
    fields: dict[str, list[str]] = defaultdict(list)
    for name, value in sent.lines:
        fields[f"HTTP_{name.decode('latin-1').upper().replace('-', '_')}"].append(value.strip(b" \t").decode("latin-1"))
    joined = {name: ",".join(values) for name, values in fields.items()}
    server = {"SERVER_NAME": "localhost", "SERVER_PORT": "80", "wsgi.url_scheme": "http", "wsgi.input": BytesIO()}
    return {**environ(), **server, **joined, "QUERY_STRING": sent.query.decode("latin-1"), "HTTP_HOST": "localhost"}


def by_environ(app: Any) -> Ask:
    async def ask(sent: Sent) -> Seen:
        try:
            answer = wsgi(app, **as_environ(sent))
        except UnicodeDecodeError as error:
            return _failed(error)
        return _read(answer.status, answer.body)

    return ask


# Django


def django_view(request: Any) -> JsonResponse:
    fields = request.headers
    return JsonResponse(
        told(fields.get("x-key"), request.GET.get("key"), request.COOKIES.get("key"), fields.get("authorization"))
    )


urlpatterns = [path("", django_view)]


# Servers, by sockets


async def aiohttp_view(request: web.Request) -> web.Response:
    fields = request.headers
    return web.json_response(
        told(fields.get("x-key"), request.query.get("key"), request.cookies.get("key"), fields.get("authorization"))
    )


def on_wire(sent: Sent) -> bytes:
    target = sent.target + b"?" + sent.query if sent.query else sent.target
    lines = b"".join(b"%b: %b\r\n" % line for line in ((b"Host", b"localhost"), *sent.lines))
    return b"GET %b HTTP/1.1\r\n%bConnection: close\r\n\r\n" % (target, lines)


def by_socket(port: int) -> Ask:
    async def ask(sent: Sent) -> Seen:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**20)
        writer.write(on_wire(sent))
        answer = await asyncio.wait_for(reader.read(), 10)
        writer.close()
        head, _, body = answer.partition(b"\r\n\r\n")
        return _read(int(head.split(b" ", 2)[1]), body if b"chunked" not in head.lower() else b"")

    return ask


@asynccontextmanager
async def _aiohttp(policy: Any) -> AsyncIterator[Ask]:
    app = web.Application()
    app.router.add_get("/", aiohttp_view)
    RateLimits(app, policy, store=still())
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield by_socket(runner.addresses[0][1])
    finally:
        await runner.cleanup()


@asynccontextmanager
async def _uvicorn(policy: Any) -> AsyncIterator[Ask]:
    app = Asgi(starlette_app(), policy, store=still())
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="critical", lifespan="off"))
    serving = asyncio.ensure_future(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    try:
        yield by_socket(server.servers[0].sockets[0].getsockname()[1])
    finally:
        server.should_exit = True
        await serving


@asynccontextmanager
async def _gunicorn(policy: Any) -> AsyncIterator[Ask]:
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "gunicorn",
        "--log-level=critical",
        f"--bind=127.0.0.1:{port}",
        f"{__name__}:served",
    ]
    server = subprocess.Popen(command, env={**os.environ, SERVED: json.dumps(policy)})
    try:
        await asyncio.to_thread(wait_until, lambda: _listens(port), "gunicorn")
        yield by_socket(port)
    finally:
        server.terminate()
        server.wait(30)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def __getattr__(name: str) -> Any:
    """The app of a server that runs in a process of its own."""
    if name == "served":
        return Wsgi(flask_app(), json.loads(os.environ[SERVED]))
    raise AttributeError(name)


@asynccontextmanager
async def _django(policy: Any, make: Callable[[], Any], by: Callable[[Any], Ask]) -> AsyncIterator[Ask]:
    given = {"POLICY": policy, "STORE": still()}
    with django.test.override_settings(ROOT_URLCONF=__name__, MIDDLEWARE=[django_site.LIMITS], HEADGATE=given):
        yield by(make())


def _made(make: Callable[[], Any], by: Callable[[Any], Ask], edge: Any) -> Any:
    @asynccontextmanager
    async def reader(policy: Any) -> AsyncIterator[Ask]:
        yield by(edge(make(), policy, store=still()))

    return reader


def _in_flask(app: Flask, policy: Any, store: MemoryStore) -> Flask:
    FlaskRateLimits(app, policy, store=store)
    return app


READERS: dict[str, Callable[[Any], Any]] = {
    "starlette": _made(starlette_app, by_scope, Asgi),
    "fastapi": _made(fastapi_app, by_scope, Asgi),
    "litestar": _made(litestar_app, by_scope, Asgi),
    "quart": _made(quart_app, by_scope, Asgi),
    "flask": _made(flask_app, by_environ, _in_flask),
    "flask behind WSGI": _made(flask_app, by_environ, Wsgi),
    "django": lambda policy: _django(policy, WSGIHandler, by_environ),
    "django async": lambda policy: _django(policy, ASGIHandler, by_scope),
    "aiohttp": _aiohttp,
    "uvicorn": _uvicorn,
}
"""By name, what a policy is put in front of. Entered in an event loop, each gives a function that asks."""
SLOW: dict[str, Callable[[Any], Any]] = {"gunicorn": _gunicorn}
"""For long storms."""


def asking(reader: str, policy: Any, requests: Iterable[Sent]) -> list[Seen]:
    """What came of these requests, one after the other. Frameworks log what they refuse, at length."""

    async def asked() -> list[Seen]:
        async with (READERS | SLOW)[reader](policy) as ask:
            return [await ask(sent) for sent in requests]

    logging.disable(logging.CRITICAL)
    try:
        return asyncio.run(asked())
    finally:
        logging.disable(logging.NOTSET)
