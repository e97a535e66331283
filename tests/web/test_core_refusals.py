"""A limiter that an app calls in a view: the `RateLimited` that it raises is the edge's refusal, not a 500."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient as AiohttpClient
from aiohttp.test_utils import TestServer
from django.http import HttpResponse
from django.test import override_settings
from django.urls import path
from fastapi import FastAPI
from fastapi.responses import JSONResponse
from flask import Flask, jsonify
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import WebSocketRoute
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from headgate import HeadgateError, Limiter, RateLimited
from headgate.errors import BudgetExhausted
from headgate.web import aiohttp, fastapi, flask, starlette
from tests.support.django_site import site
from tests.support.edges import asgi, still

pytestmark = pytest.mark.engineless

POLICY: dict[str, Any] = {"rules": [{"name": "front", "key": "ip", "limits": "9/minute"}]}
LIMITER = Limiter("1/hour as views", store=still())


@pytest.fixture(autouse=True)
def used_up():
    """Every view is refused."""
    LIMITER.reset("all")
    assert LIMITER.hit("all").allowed


@LIMITER.limited("all")
def guarded() -> None:
    """Not reached."""
    raise AssertionError


def django_view(request: Any) -> HttpResponse:
    guarded()
    return HttpResponse()


class Urls:
    urlpatterns = (path("", django_view),)


def test_the_handler_for_refusals_has_a_say():
    """As about a refusal at an endpoint; it is given the decision, and how long to wait."""
    app = FastAPI()
    fastapi.RateLimits(app, store=still())

    @app.exception_handler(fastapi.RateLimitExceeded)
    async def slow_down(request: Any, error: Any) -> JSONResponse:
        return JSONResponse({"wait": error.retry_after, "limit": error.decision.limit}, 429)

    app.get("/")(lambda: guarded())
    answer = asgi(app)
    assert json.loads(answer.body) == {"wait": 3600, "limit": 1} and answer.fields["retry-after"] == "3600"

    site = Flask("here")
    flask.RateLimits(site, store=still())
    site.add_url_rule("/", "view", guarded)

    @site.errorhandler(429)
    def slow(error: Any) -> Any:
        return jsonify(wait=error.retry_after, limit=error.decision.limit), 429

    told = site.test_client().get("/")
    assert told.json == {"wait": 3600, "limit": 1} and told.headers["retry-after"] == "3600"

    with override_settings(ROOT_URLCONF=Urls), site_of(refusal_view) as client:
        assert json.loads(client.get("/").content) == {"wait": 3600, "limit": 1}


def refusal_view(request: Any, no: Any) -> HttpResponse:
    return HttpResponse(json.dumps({"wait": no.retry_after, "limit": no.decision.limit}), status=429)


def site_of(view: Any) -> Any:
    return site(refusal_view=view)


def test_a_middleware_of_aiohttp_sees_it():
    """A middleware catches it as a `RateLimitExceeded` with its decision and its wait."""
    seen: list[Any] = []

    @web.middleware
    async def watch(request: web.Request, handler: Any) -> Any:
        try:
            return await handler(request)
        except aiohttp.RateLimitExceeded as no:
            seen.append((no.retry_after, repr(no.decision)))
            raise

    async def view(request: web.Request) -> web.Response:
        guarded()
        return web.Response()

    async def told() -> int:
        app = web.Application(middlewares=[watch])
        aiohttp.RateLimits(app, store=still())
        app.router.add_get("/", view)
        async with AiohttpClient(TestServer(app)) as client:
            return (await client.get("/")).status

    assert asyncio.run(told()) == 429 and seen == [(3600, "<Decision refused, retry after 3600 s, by 1/hour as views>")]


@pytest.mark.parametrize("kind", [RateLimited, HeadgateError])
def test_an_app_that_handles_it_itself_goes_on_to(kind):
    """A handler of the app's for `RateLimited` comes before the edge's."""

    async def mine(request: Any, error: Any) -> PlainTextResponse:
        return PlainTextResponse("mine", 418)

    app = FastAPI(exception_handlers={kind: mine})
    fastapi.RateLimits(app, store=still())
    app.get("/")(lambda: guarded())
    assert asgi(app).status == 418
    site = Flask("here")
    site.register_error_handler(RateLimited, lambda error: ("mine", 418))
    flask.RateLimits(site, store=still())
    site.add_url_rule("/", "view", guarded)
    assert site.test_client().get("/").status_code == 418


def test_a_websocket_is_closed():
    """A limiter that refuses in a websocket closes it with 1008."""

    async def socket(websocket: Any) -> None:
        await websocket.accept()
        guarded()

    app = Starlette(routes=[WebSocketRoute("/", socket)])
    starlette.RateLimits(app, store=still())
    with TestClient(app).websocket_connect("/") as opened, pytest.raises(WebSocketDisconnect) as closed:
        opened.receive_text()
    assert closed.value.code == 1008


def spending() -> None:
    """A call to another service that its budget does not make."""
    raise BudgetExhausted("api.example", "the budget is used up", 12.2)


def test_an_app_answers_a_used_up_budget_itself_if_it_wants_to():
    """A handler of the app's for `BudgetExhausted`, or for 503, is called; one for refusals of clients is not."""

    async def mine(request: Any, error: Any) -> PlainTextResponse:
        return PlainTextResponse("mine", 418)

    for kind, status in ((BudgetExhausted, 418), (HeadgateError, 418), (fastapi.RateLimitExceeded, 503)):
        app = FastAPI(exception_handlers={kind: mine})
        fastapi.RateLimits(app, store=still())
        app.get("/")(lambda: spending())
        assert asgi(app).status == status, kind
    for handled, status in ((BudgetExhausted, 418), (503, 418), (429, 503)):
        site = Flask("here")
        site.register_error_handler(handled, lambda error: ("mine", 418))
        flask.RateLimits(site, store=still())
        site.add_url_rule("/", "view", spending)
        assert site.test_client().get("/").status_code == status, handled


def test_a_websocket_with_a_used_up_budget_is_closed():
    """The close code is 1013, try again later."""

    async def socket(websocket: Any) -> None:
        await websocket.accept()
        spending()

    app = Starlette(routes=[WebSocketRoute("/", socket)])
    starlette.RateLimits(app, store=still())
    with TestClient(app).websocket_connect("/") as opened, pytest.raises(WebSocketDisconnect) as closed:
        opened.receive_text()
    assert closed.value.code == 1013


each_grpc_method = pytest.mark.parametrize("method", ["Unary", "Stream", "Collect", "Chat"])
every_grpc_server = pytest.mark.parametrize("kind", ["threads", "loop", "reading", "threads of a loop"])


@pytest.mark.parametrize("policy", [None, POLICY])
@each_grpc_method
@every_grpc_server
def test_a_call_of_grpc_with_a_used_up_budget_is_unavailable(kind, method, policy):
    """The pushback is in whole seconds, and no limit is told: the client did nothing wrong."""
    grpc_servers = pytest.importorskip("tests.support.grpc_servers")
    with grpc_servers.serving(kind, policy) as server:
        ended = server.ask(method, b"exhausted")
    assert (ended.code.name, ended.details) == (
        "UNAVAILABLE",
        "The server has less capacity than usual. Retry after 13 s.",
    )
    assert ended.trailing == {"retry-after": "13", "grpc-retry-pushback-ms": "13000"}


@pytest.mark.parametrize("policy", [None, POLICY])
@each_grpc_method
@every_grpc_server
def test_a_call_of_grpc_is_refused(kind, method, policy):
    """Every kind of handler refuses, on every kind of server; for a cost that never fits, no wait is told."""
    grpc_servers = pytest.importorskip("tests.support.grpc_servers")
    with grpc_servers.serving(kind, policy) as server:
        ended = server.ask(method, b"refuse")
    assert ended.code.name == "RESOURCE_EXHAUSTED"
    assert (
        ended.trailing["ratelimit-policy"] == '"views";q=1;w=3600' and ended.trailing["grpc-retry-pushback-ms"] == "-1"
    )


def test_refusals_at_endpoints_tell_the_decision_and_the_wait():
    """At every edge."""
    seen: list[tuple[Any, Any]] = []
    app = FastAPI()
    fastapi.RateLimits(app, default="1/hour", store=still())
    app.get("/")(lambda: "hello")

    @app.exception_handler(fastapi.RateLimitExceeded)
    async def note(request: Any, error: Any) -> PlainTextResponse:
        seen.append((error.decision.limit, error.retry_after))
        return PlainTextResponse("later", 429)

    assert [asgi(app).status for _ in range(2)] == [200, 429]
    assert seen == [(1, 3600)]
