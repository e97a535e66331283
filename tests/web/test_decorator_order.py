"""`@limited` above the decorator of a route: it limits, or the app does not start."""

from __future__ import annotations

import asyncio
import functools
from typing import Any

import pytest
from aiohttp import web
from fastapi import APIRouter, FastAPI
from flask import Flask
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from headgate import AsyncLimiter, InvalidCall, Limiter
from headgate.web import fastapi, starlette
from tests.support.edges import asgi, still

pytestmark = pytest.mark.engineless

SWAP = "swap the two lines"


def wrapping(endpoint: Any) -> Any:
    """Another decorator, between the limit and the route."""

    @functools.wraps(endpoint)
    async def wrapped(*args: Any, **kwargs: Any) -> Any:
        return await endpoint(*args, **kwargs)

    return wrapped


def wrong(kind: str = "get") -> FastAPI:
    """An app with an endpoint whose limit stands above its route."""
    app, router = FastAPI(), APIRouter()
    fastapi.RateLimits(app, store=still())

    async def search(websocket: Any = None) -> str:
        return "hello"

    below = fastapi.limited("2/minute")(search) if kind == "twice" else search
    routes = {"router": router.get("/search"), "websocket": app.websocket("/ws")}
    endpoint = routes.get(kind, app.get("/search"))(below)
    fastapi.limited("1/minute")(wrapping(endpoint) if kind == "wrapped" else endpoint)
    app.include_router(router, prefix="/api")
    return app


@pytest.mark.parametrize("kind", ["get", "router", "websocket", "twice", "wrapped"])
def test_fastapi_does_not_start(kind):
    """Where a server tells the app that it starts, then; else at every request."""
    app = wrong(kind)
    with pytest.raises(InvalidCall, match=SWAP), TestClient(app):
        pass
    for _ in range(2):
        with pytest.raises(InvalidCall, match=SWAP):
            asgi(app, path="/search")


@pytest.mark.parametrize("above", [True, False])
def test_a_dependency_is_no_decorator(above):
    """`limit` in place of `limited` raises, where it would limit nothing."""
    app = FastAPI()
    decorator: Any = fastapi.limit("1/minute")

    async def search() -> str:
        return "hello"

    with pytest.raises(TypeError, match="positional argument"):
        decorator(app.get("/search")(search) if above else search)


def test_an_app_without_limits_of_its_own_raises_at_the_decorator():
    """Nothing of Headgate is in such an app, so the decorator itself looks for a route that has the endpoint."""
    app, router = FastAPI(), APIRouter()
    for routes in (app, router):
        with pytest.raises(InvalidCall, match=r"^the route /search already calls tests\..*; swap the two lines$"):

            @fastapi.limited("1/minute")
            @routes.get("/search")
            async def search() -> str:
                return "hello"

    with pytest.raises(InvalidCall, match=SWAP):

        @fastapi.limited("1/minute")
        @wrapping
        @app.get("/search")
        async def wrapped() -> str:
            return "hello"

    @app.get("/right")
    @fastapi.limited("1/minute")
    async def right() -> str:
        return "hello"

    fastapi.limited("1/minute")(app.get("/free")(right))  # a second route: the name is there already


def test_a_server_is_told_why_the_app_does_not_start():
    """The message of the lifespan names the endpoint and the remedy."""
    sent: list[Any] = []

    async def told() -> None:
        async def receive() -> Any:
            return {"type": "lifespan.startup"}

        async def send(message: Any) -> None:
            sent.append(message)

        await wrong()({"type": "lifespan", "asgi": {"version": "3.0"}}, receive, send)

    with pytest.raises(InvalidCall):
        asyncio.run(told())
    [message] = sent
    assert message["type"] == "lifespan.startup.failed"
    assert "wrong.<locals>.search" in message["message"] and SWAP in message["message"]


def test_starlette_with_its_middleware_does_not_start():
    """The middleware alone finds an endpoint whose limit was made after its route."""

    async def search(request: Any) -> PlainTextResponse:
        return PlainTextResponse("hello")

    app = Starlette(routes=[Route("/search", search)])
    app.add_middleware(starlette.RateLimitMiddleware, store=still())
    starlette.limited("1/minute")(search)  # what `search` would be from now on
    with pytest.raises(InvalidCall, match=SWAP), TestClient(app):
        pass


async def shared(request: Any) -> PlainTextResponse:
    """At one route as it is, and at another with a limit."""
    return PlainTextResponse("hello")


LIMITED = starlette.limited("1/minute")(shared)


def test_an_endpoint_may_be_at_one_route_without_limits_and_at_another_below_other_decorators():
    """Around the limit and within it."""

    async def search(request: Any) -> PlainTextResponse:
        return PlainTextResponse("hello")

    slow = wrapping(starlette.limited("1/minute")(wrapping(search)))
    app = Starlette(routes=[Route("/free", search), Route("/search", slow)])
    starlette.RateLimits(app, store=still())
    assert [asgi(app, path=path).status for path in ("/free", "/free", "/search", "/search")] == [200, 200, 200, 429]


def test_an_endpoint_may_be_at_one_route_without_limits_and_at_another_with():
    """In one app, or in two."""
    app = Starlette(routes=[Route("/free", shared), Route("/search", LIMITED)])
    starlette.RateLimits(app, store=still())
    assert [asgi(app, path=path).status for path in ("/free", "/free", "/search", "/search")] == [200, 200, 200, 429]
    other = Starlette(routes=[Route("/free", shared)])
    starlette.RateLimits(other, store=still())
    assert [asgi(other, path="/free").status for _ in range(2)] == [200, 200]


@pytest.mark.parametrize("routes", [FastAPI(), APIRouter(), Flask("shop"), web.RouteTableDef()])
def test_the_decorator_of_a_limiter_raises_above_a_route_too(routes):
    """Every framework would call the function without it."""
    with pytest.raises(InvalidCall, match=SWAP):

        @AsyncLimiter("1/minute").limited("all")
        @routes.get("/search")
        async def search() -> str:
            return "hello"

    @routes.get("/right")
    @AsyncLimiter("1/minute").limited("all")
    async def right() -> str:
        return "hello"

    @routes.get("/free")
    def free() -> str:
        return "hello"

    assert Limiter("1/minute").limited("all")(free)() == "hello"
