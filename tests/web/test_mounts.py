"""Apps below a prefix: a rule is written as the app behind it routes the path, without the prefix, at every edge."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from django.test import AsyncClient
from fastapi import FastAPI
from flask import Flask
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.testclient import TestClient as StarletteClient
from starlette.websockets import WebSocketDisconnect

from headgate.web.aiohttp import RateLimits as AiohttpLimits
from headgate.web.asgi import RateLimitMiddleware as Asgi
from headgate.web.fastapi import RateLimits as FastApiLimits
from headgate.web.flask import RateLimits as FlaskLimits
from headgate.web.starlette import RateLimits as StarletteLimits
from headgate.web.starlette import limited
from headgate.web.wsgi import RateLimitMiddleware as Wsgi
from tests.support.django_site import site
from tests.support.edges import asgi, still, wsgi

pytestmark = pytest.mark.engineless

POLICY: dict[str, Any] = {"rules": [{"match": {"path": "/login"}, "key": "ip", "limits": "2/hour"}]}
BASE = {"wsgi.input": None, "SERVER_NAME": "x", "SERVER_PORT": "80", "wsgi.url_scheme": "http"}
LIMITED = [200, 200, 429]


def starlette() -> Starlette:
    return Starlette(routes=[Route("/login", lambda request: PlainTextResponse("hello"))])


def flask() -> Flask:
    app = Flask("here")
    app.add_url_rule("/login", "login", lambda: "hello")
    return app


@pytest.mark.parametrize(
    ("path", "root"),
    [
        ("/login", ""),
        ("/api/login", "/api"),  # uvicorn --root-path /api, and mounts
        ("/login", "/api"),  # hypercorn, and FastAPI(root_path="/api") behind a proxy that takes the prefix away
        ("/api//login/", "/api"),
    ],
)
def test_asgi_apps_are_asked_for_what_they_route(path, root):
    """The short way and the long way agree, and keep Starlette's own meaning of `root_path`."""
    inside = starlette()
    StarletteLimits(inside, POLICY, store=still())
    long = Asgi(starlette(), POLICY, store=still(), plan=lambda view: None)
    for app in (inside, Asgi(starlette(), POLICY, store=still()), long):
        found = [asgi(app, path=path, root_path=root).status for _ in range(3)]
        assert found == (LIMITED if "//" not in path else [404, 404, 429])


def test_a_path_that_only_begins_as_the_prefix_does_is_whole():
    """`/apiary` is not below `/api`, and `/api` itself is the root."""
    app = Asgi(starlette(), {"rules": [{"match": {"path": "/apiary"}, "key": "ip", "limits": "1/hour"}]}, store=still())
    assert [asgi(app, path="/apiary", root_path="/api").status for _ in range(2)] == [404, 429]
    root = Asgi(starlette(), {"rules": [{"match": {"path": "/"}, "key": "ip", "limits": "1/hour"}]}, store=still())
    assert [asgi(root, path="/api", root_path="/api").status for _ in range(2)] == [404, 429]


def test_a_mounted_app_has_rules_of_its_own():
    """Rules of the app within see its own paths, those of the app around see whole ones."""
    inner, outer = starlette(), Starlette()
    StarletteLimits(inner, POLICY, store=still())
    outer.mount("/sub", inner)
    assert [asgi(outer, path="/sub/login").status for _ in range(3)] == LIMITED
    rules = {"rules": [{"match": {"path": "/sub/login"}, "key": "ip", "limits": "2/hour"}]}
    whole = Starlette(routes=[Mount("/sub", starlette())])
    StarletteLimits(whole, rules, store=still())
    assert [asgi(whole, path="/sub/login").status for _ in range(3)] == LIMITED
    assert [asgi(whole, path="/x/sub/login", root_path="/x").status for _ in range(1)] == [429]


def test_limits_at_endpoints_below_a_mount_see_the_path_that_the_limited_app_routes():
    """As the rules of the policy in front of that app do."""

    @limited("1/hour", match={"path": "/sub/login"})
    async def login(request: Any) -> PlainTextResponse:
        return PlainTextResponse("hello")

    app = Starlette(routes=[Mount("/sub", routes=[Route("/login", login)])])
    StarletteLimits(app, store=still())
    assert [asgi(app, path="/x/sub/login", root_path="/x").status for _ in range(2)] == [200, 429]


def test_messages_of_a_websocket_below_a_mount_are_counted():
    """A rule for messages names the whole path of the websocket."""

    async def echo(socket: Any) -> None:
        await socket.accept()
        with suppress(WebSocketDisconnect):
            while True:
                await socket.send_text(await socket.receive_text())

    rules = {"rules": [{"match": {"path": "/sub/ws", "method": "MESSAGE"}, "key": "ip", "limits": "2/hour"}]}
    app = Starlette(routes=[Mount("/sub", routes=[WebSocketRoute("/ws", echo)])])
    StarletteLimits(app, rules, store=still())
    with StarletteClient(app).websocket_connect("/sub/ws") as socket:
        for _ in range(2):
            socket.send_text("hello")
            assert socket.receive_text() == "hello"
        socket.send_text("hello")
        with pytest.raises(WebSocketDisconnect):
            socket.receive_text()


def test_fastapi_below_a_prefix():
    """A rule sees the path without the `root_path`."""
    app = FastAPI()
    app.get("/login")(lambda: "hello")
    FastApiLimits(app, POLICY, store=still())
    assert [asgi(app, path="/api/login", root_path="/api").status for _ in range(3)] == LIMITED


@pytest.mark.parametrize("more", [{}, {"plan": lambda *_: None}])
def test_wsgi_apps_are_asked_for_what_they_route(more):
    """A rule sees the path without the `SCRIPT_NAME`, by the short way and the long way."""
    for script in ("", "/api"):
        apps: list[Any] = [Wsgi(flask().wsgi_app, POLICY, store=still(), **more), flask()]
        FlaskLimits(apps[1], POLICY, store=still(), **more)
        for app in apps:
            found = [wsgi(app, path="/login", SCRIPT_NAME=script, **BASE).status for _ in range(3)]
            assert found == LIMITED


def test_a_path_without_its_slash_is_what_frameworks_make_of_it():
    """Werkzeug routes `login` as `/login`."""
    app = Wsgi(flask().wsgi_app, POLICY, store=still())
    assert [wsgi(app, path="login", **BASE).status for _ in range(3)] == LIMITED


def test_django_sites_are_asked_for_what_they_route():
    """A rule sees the path without the prefix, under WSGI and under ASGI."""
    policy = {"rules": [{"match": {"path": "/free"}, "key": "ip", "limits": "2/hour"}]}
    with site(policy=policy) as client:
        assert [client.get("/free/", SCRIPT_NAME="/api").status_code for _ in range(3)] == LIMITED

    async def told() -> list[int]:
        with site(lambda: AsyncClient(root_path="/api"), policy=policy) as client:
            return [(await client.get("/api/free/")).status_code for _ in range(3)]

    assert asyncio.run(told()) == LIMITED


def test_an_app_within_an_aiohttp_app_has_rules_of_its_own():
    """Rules of the app within see its own paths, those of the app around see whole ones."""

    async def hello(request: web.Request) -> web.Response:
        return web.Response(text="hello")

    async def told(policy: Any, *, whole: bool) -> list[int]:
        inner, between, outer = web.Application(), web.Application(), web.Application()
        AiohttpLimits(outer if whole else inner, policy, store=still())
        inner.router.add_get("/login", hello)
        between.add_subapp("/b", inner)
        outer.add_subapp("/a", between)
        async with TestClient(TestServer(outer)) as client:
            return [(await client.get("/a/b/login")).status for _ in range(3)]

    assert asyncio.run(told(POLICY, whole=False)) == LIMITED
    longer = {"rules": [{"match": {"path": "/a/b/login"}, "key": "ip", "limits": "2/hour"}]}
    assert asyncio.run(told(longer, whole=True)) == LIMITED
    long_way = {"rules": [{**POLICY["rules"][0], "cost": lambda view: 1}]}
    assert asyncio.run(told(long_way, whole=False)) == LIMITED
