"""aiohttp: limited handlers that `RateLimits` cannot find by the routes of its app are not without limits."""

from __future__ import annotations

import functools
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from headgate.web.aiohttp import RateLimits, exempt, limited
from tests.support.awaiting import awaited
from tests.support.edges import still
from tests.web.test_aiohttp import POLICY, chat, hello, opened, served, site, statuses

pytestmark = pytest.mark.engineless


@limited("1/minute")
async def search(request: web.Request) -> web.Response:
    """One a minute."""
    return web.Response(text="found")


@limited("2/minute")
@limited("9/minute")
class Documents(web.View):
    """Two a minute, of them one that writes."""

    async def get(self) -> web.Response:
        return web.Response()

    @limited("1/minute")
    async def post(self) -> web.Response:
        return web.Response()

    @exempt
    async def options(self) -> web.Response:
        return web.Response()


class Methods(web.View):
    """A limit of one method."""

    @limited("1/minute")
    async def get(self) -> web.Response:
        return web.Response()


def careless(handler: Any) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """A decorator that copies nothing from its handler."""

    async def decorated(request: web.Request) -> web.StreamResponse:
        response: web.StreamResponse = await handler(request)
        return response

    return decorated


@pytest.mark.parametrize("handler", [search, Documents, Methods, careless(search), careless(Documents)])
@awaited
async def test_an_app_without_limits_answers_with_an_error(handler, caplog):
    """Never without a limit: the error names the handler and the line that is missing."""
    caplog.set_level(logging.ERROR)
    app = web.Application()
    app.add_routes([web.get("/", handler)])
    async with served(app) as client:
        assert await statuses(client, 2) == [500, 500]
    told = str(caplog.records[0].exc_info[1])
    assert told.startswith("tests.web.test_aiohttp_unmarked.")
    assert told.endswith("has limits, and its app has none; write RateLimits(app) where the app is created")


def careful(handler: Any) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """A decorator that copies what its handler has."""
    return functools.wraps(handler)(careless(handler))


def table() -> web.RouteTableDef:
    """Routes whose limits stand above them; twice, with a limit below as well, and above another decorator."""
    routes = web.RouteTableDef()

    @limited("3/minute")
    @limited("1/minute")
    @routes.get("/a")
    @routes.get("/b")
    async def above(request: web.Request) -> web.Response:
        return web.Response()

    @limited("1/minute")
    @routes.get("/c")
    @limited("3/minute")
    async def around(request: web.Request) -> web.Response:
        return web.Response()

    @limited("3/minute")
    @limited("1/minute")
    @careful
    @routes.get("/d")
    async def wrapped(request: web.Request) -> web.Response:
        return web.Response()

    routes.static("/static", ".")
    return routes


@awaited
async def test_a_limit_above_the_route_raises_in_an_app_without_limits(caplog):
    """The table of routes has the handler already, and gets the limited one."""
    caplog.set_level(logging.ERROR)
    app = web.Application()
    app.add_routes(table())
    async with served(app) as client:
        assert [await statuses(client, 1, path) for path in ("/a", "/b", "/c", "/d")] == [[500]] * 4
    assert "has limits, and its app has none" in str(caplog.records[0].exc_info[1])


@awaited
async def test_a_limit_above_the_route_limits():
    """As if it stood below: all limits are one decision, and each route counts for itself."""
    app = site()
    app.add_routes(table())
    async with served(app) as client:
        for path in ("/a", "/b", "/c", "/d"):
            async with client.get(path) as answer:
                assert answer.headers["RateLimit"].count(";r=") == 2
            assert await statuses(client, 2, path) == [429, 429]


@awaited
async def test_a_route_keeps_a_handler_that_is_limited_elsewhere():
    """A table of routes gets the limited handler only from a decorator above the route."""
    routes = web.RouteTableDef()

    @routes.get("/free")
    async def shared(request: web.Request) -> web.Response:
        return web.Response()

    app = web.Application()
    app.router.add_get("/limited", limited("1/minute")(shared))
    app.add_routes(routes)
    async with served(app) as client:
        assert [await statuses(client, 1, path) for path in ("/free", "/limited")] == [[200], [500]]


@awaited
async def test_a_decorator_that_loses_the_mark_does_not_lose_the_limits():
    """They count as they would with the mark: each limit once, and each route for itself."""
    app = site(web.get("/a", careless(search)), web.get("/b", careless(search)), web.get("/c", search))
    app.add_routes([web.route("*", "/documents", careless(Documents)), web.get("/methods", careless(Methods))])
    async with served(app) as client:
        for path in ("/a", "/b", "/c", "/methods"):
            assert await statuses(client, 2, path) == [200, 429]
        async with client.get("/documents") as answer:
            assert answer.headers["RateLimit"].count(";r=") == 2
            assert ";r=1;" in answer.headers["RateLimit"] and ";r=8;" in answer.headers["RateLimit"]
        assert await statuses(client, 2, "/documents") == [200, 429]


@awaited
async def test_marks_that_are_kept_are_asked_about_once():
    """A view looks for the limits of its class and its method, which were asked in front of it."""
    async with served(site(web.view("/", Documents))) as client:
        assert await statuses(client, 2, "/", "POST") == [200, 429]
        assert await statuses(client, 2, "/") == [200, 429]
        assert await statuses(client, 3, "/", "OPTIONS") == [200] * 3


@awaited
async def test_a_handler_that_another_one_calls_is_limited():
    """Beside the limits of the route; a request that one of them refuses costs nothing in the other."""

    @limited("3/minute")
    async def front(request: web.Request) -> web.StreamResponse:
        return await search(request) if "q" in request.query else await hello(request)

    async with served(site(web.get("/", front))) as client:
        assert await statuses(client, 2, "/?q=1") == [200, 429]
        assert await statuses(client, 3, "/") == [200, 200, 429]


@awaited
async def test_permits_of_such_a_handler_are_given_back():
    """After each request, whatever it was."""
    handler = limited("1 in flight")(functools.partial(hello))
    async with served(site(web.get("/", careless(handler)))) as client:
        assert await statuses(client, 3) == [200] * 3


@awaited
async def test_a_handshake_is_counted_as_such_below_a_careless_decorator():
    """The policy begins anew with a handshake; the limits of the handler go on."""

    handler = limited("1/minute")(functools.partial(chat))
    async with served(site(web.get("/ws", careless(handler)), policy=POLICY)) as client:
        assert [await opened(client, "/ws") for _ in range(2)] == [101, 429]


@awaited
async def test_an_app_within_finds_the_limits_around_it():
    """The nearest `RateLimits` decides."""
    inner = web.Application()
    inner.add_routes([web.get("/", careless(search))])
    around = web.Application()
    RateLimits(around, store=still())
    around.add_subapp("/in", inner)
    async with served(around) as client:
        assert await statuses(client, 2, "/in/") == [200, 429]
