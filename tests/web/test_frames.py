"""How many functions a request runs: the cost of a middleware that no profiler of wall time can blur."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from fastapi import FastAPI
from flask import Flask
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse

import headgate
from headgate.engine import NATIVE
from headgate.testing.edges import App, Endpoint
from headgate.web import aiohttp, fastapi, flask, misconfiguration, starlette
from headgate.web.asgi import RateLimitMiddleware
from tests.support.adapters.django import DjangoSuite
from tests.support.edges import asgi, get, wsgi

HOME = str(Path(headgate.__file__).parent)
RULE = {"name": "api", "match": {"path": "/**"}, "key": "ip", "limits": "100/minute"}


PROXIES = {"trusted_proxies": ["10.0.0.0/8"]}
FORWARDED = {"x-forwarded-for": "192.0.2.7"}


async def _hello(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


@contextmanager
def _counting() -> Iterator[list[str]]:
    """Note each function of Headgate that begins or goes on meanwhile, in this thread."""
    begun: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith((HOME, "<string>")):
            begun.append(frame.f_code.co_name)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield begun
    finally:
        sys.setprofile(before)


def _functions_run_by(ask: Callable[[], Any]) -> int:
    """Return how often a function of Headgate begins or goes on while a request is answered."""
    with _counting() as begun:
        assert ask().status == 200
    return len(begun)


def _fewest(apps: list[RateLimitMiddleware], path: str) -> int:
    return min(_functions_run_by(lambda app=app: asgi(app, "GET", path)) for app in apps)  # type: ignore[misc]


@pytest.mark.skipif(not NATIVE, reason="the pure engine runs its own functions for each decision")
@pytest.mark.parametrize(
    ("rule", "first", "another_path", "again"),
    [(RULE, 98, 26, 20), ({**RULE, "count": {"when": {"status": [401, 403]}}}, 110, 80, 73)],
    ids=["plain", "count.when"],
)
def test_a_request_runs_a_bounded_number_of_functions(rule, first, another_path, again):
    """The first request builds everything once; a new path only looks for its rules; a known path does neither."""
    another = RateLimitMiddleware(_hello, {"rules": [RULE]})
    assert asgi(another, "GET", "/a").status == 200  # the first request of a process fills caches that all apps share
    apps = [RateLimitMiddleware(_hello, {"rules": [rule]}) for _ in range(3)]  # one request in 64 is also sampled
    assert _fewest(apps, "/a") <= first
    assert _fewest(apps, "/b") <= another_path
    assert _fewest(apps, "/a") <= again


async def _endpoint(request: Any = None) -> PlainTextResponse:
    return PlainTextResponse("hello")


def _of_starlette() -> Callable[[], Any]:
    app = Starlette()
    app.add_route("/", starlette.limited("999/hour")(_endpoint))
    starlette.RateLimits(app, **PROXIES)
    return partial(asgi, app, headers=FORWARDED, client=("10.0.0.1", 1))


def _of_fastapi() -> Callable[[], Any]:
    app = FastAPI()
    app.get("/")(fastapi.limited("999/hour")(_endpoint))
    fastapi.RateLimits(app, **PROXIES)
    return partial(asgi, app, headers=FORWARDED, client=("10.0.0.1", 1))


def _of_flask() -> Callable[[], Any]:
    app = Flask("site")
    app.get("/")(flask.limited("999/hour")(lambda: "hello"))
    flask.RateLimits(app, **PROXIES)
    return partial(wsgi, app, headers=FORWARDED, REMOTE_ADDR="10.0.0.1", SERVER_NAME="site", SERVER_PORT="80",
                   **{"wsgi.url_scheme": "http"})  # fmt: skip


@pytest.mark.skipif(not NATIVE, reason="the pure engine runs its own functions for each decision")
@pytest.mark.parametrize(("make", "most"), [(_of_starlette, 22), (_of_fastapi, 21), (_of_flask, 8)])
def test_an_endpoint_behind_a_proxy_runs_a_bounded_number_of_functions(make, most, monkeypatch):
    """Once the first requests were examined for misconfigurations, a client is read from one header by a short way."""
    monkeypatch.setattr(misconfiguration, "LOOKED_AT", 1)
    ask = make()
    ask()
    assert min(_functions_run_by(ask) for _ in range(3)) <= most


@pytest.mark.skipif(not NATIVE, reason="the pure engine runs its own functions for each decision")
def test_a_view_of_django_behind_a_proxy_runs_a_bounded_number_of_functions(monkeypatch):
    """The middleware, the decorator and the view's look at its decision run 23 functions together."""
    monkeypatch.setattr(misconfiguration, "LOOKED_AT", 1)
    app = App(endpoints=(Endpoint(limits=({"limits": "999/hour"},)),), options=PROXIES)
    with DjangoSuite().serve(app) as site:
        ask = partial(site.ask, "GET", "/", FORWARDED, "10.0.0.1")
        ask()
        assert min(_functions_run_by(ask) for _ in range(3)) <= 23


@pytest.mark.skipif(not NATIVE, reason="the pure engine runs its own functions for each decision")
def test_a_handler_of_aiohttp_behind_a_proxy_runs_a_bounded_number_of_functions(monkeypatch):
    """A request over a socket runs 9 functions of the edge, from its admission to the fields of its response."""
    monkeypatch.setattr(misconfiguration, "LOOKED_AT", 1)

    async def handler(request: web.Request) -> web.Response:
        return web.Response(text="hello")

    async def fewest() -> int:
        app = web.Application()
        app.router.add_get("/", aiohttp.limited("999/hour")(handler))
        aiohttp.RateLimits(app, trusted_proxies=["127.0.0.0/8"])
        found = []
        async with TestClient(TestServer(app)) as client:
            for _ in range(4):
                with _counting() as begun:
                    assert (await client.get("/", headers=FORWARDED)).status == 200
                found.append(len(begun))
        return min(found[1:])

    assert asyncio.run(fewest()) <= 9


@pytest.mark.skipif(not NATIVE, reason="the pure engine runs its own functions for each place")
def test_an_idle_load_shedder_runs_one_function():
    """It is the middleware's: a place is taken and given back in C, once the first requests have been looked at."""
    app = RateLimitMiddleware(_hello, {"rules": [], "shed": {}})
    assert app.shedder is not None
    app.shedder.estimator.idle_until = 1 << 62
    begun: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(HOME):
            begun.append(frame.f_code.co_name)

    async def ask() -> None:
        for _ in range(1_000):
            await get(app)
            await asyncio.sleep(0)  # the next turn of the loop
        sys.setprofile(note)
        try:
            for _ in range(3):
                await get(app)
        finally:
            sys.setprofile(before)

    before = sys.getprofile()
    asyncio.run(ask())
    assert begun == ["__call__"] * 3
