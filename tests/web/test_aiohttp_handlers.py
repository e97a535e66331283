"""aiohttp: handlers of every kind, alone and in apps within apps."""

from __future__ import annotations

import functools
from itertools import groupby
from pathlib import Path
from typing import ClassVar

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from headgate import HeadgateError, InvalidCall
from headgate.testing import reset_all
from headgate.web.aiohttp import RateLimits, exempt, limited
from tests.support.awaiting import awaited
from tests.support.edges import still
from tests.web.test_aiohttp import chat, hello, opened, served, site, statuses

pytestmark = pytest.mark.engineless


class Handlers:
    """Handlers of one object."""

    @limited("1/minute")
    async def marked(self, request: web.Request) -> web.Response:
        return web.Response()

    async def plain(self, request: web.Request) -> web.Response:
        return web.Response()


@awaited
async def test_methods_and_functions_that_hold_arguments_are_limited():
    """Marked in the class, marked as bound, and marked inside of a partial."""
    handlers = Handlers()

    async def held(extra: int, request: web.Request) -> web.Response:
        return web.Response(text=str(extra))

    async with served(
        site(
            web.get("/marked", handlers.marked),
            web.get("/bound", limited("1/minute")(handlers.plain)),
            web.get("/plain", handlers.plain),
            web.get("/held", functools.partial(limited("1/minute")(held), 7)),
        )
    ) as client:
        for path in ("/marked", "/bound", "/held"):
            assert await statuses(client, 2, path) == [200, 429]
        assert await statuses(client, 3, "/plain") == [200] * 3


@limited("3/minute")
class Items(web.View):
    """Three a minute in all, of them one that writes."""

    async def get(self) -> web.Response:
        return web.Response()

    @limited("1/minute")
    async def post(self) -> web.Response:
        return web.Response()

    @exempt
    async def options(self) -> web.Response:
        return web.Response()


class Parts(web.View):
    """Limits of its methods only, the same for both."""

    @limited("1/minute")
    async def get(self) -> web.Response:
        return web.Response()

    @limited("1/minute")
    async def post(self) -> web.Response:
        return web.Response()

    async def put(self) -> web.Response:
        return web.Response()


@awaited
async def test_views_are_limited_as_a_whole_and_by_method():
    """The methods share the limit of their class, and each has its own; an exempt one has neither."""
    async with served(site(web.view("/items/{id}", Items), web.view("/parts", Parts), default="2/minute")) as client:
        assert await statuses(client, 3, "/items/1", "POST") == [200, 429, 429]
        assert await statuses(client, 3, "/items/2", "GET") == [200, 200, 429]
        assert await statuses(client, 3, "/items/2", "OPTIONS") == [200] * 3
        assert await statuses(client, 2, "/parts", "GET") == [200, 429]
        assert await statuses(client, 2, "/parts", "POST") == [200, 429]
        assert await statuses(client, 3, "/parts", "PUT") == [200, 200, 429]


class Registered(web.View):
    """A class that keeps a list of its subclasses, each under a name."""

    known: ClassVar[list[type]] = []

    def __init_subclass__(cls, name: str) -> None:
        cls.known.append(cls)


class Reports(Registered, name="reports"):
    """A limited handler keeps its name and signature for tools that inspect it."""

    @limited("1/minute")
    async def get(self) -> web.Response:
        handler = self.request.match_info.handler
        assert isinstance(handler, type) and issubclass(handler, Reports) and handler.__name__ == "Reports"
        return web.Response(text=type(self).__name__)


@awaited
async def test_what_is_in_front_of_a_handler_looks_like_it():
    """Other code may ask a route for its handler: a view stays a class, and has no subclass that anybody sees."""
    app = site(web.view("/reports", Reports), web.get("/", hello), default="1/minute")
    async with served(app) as client:
        assert await statuses(client, 2, "/reports") == [200, 429]
        assert Registered.known == [Reports]
        names = {str(route.resource): route.handler for route in app.router.routes()}
        assert [getattr(each, "__name__", "") for each in names.values()] == ["Reports", "hello"]


@awaited
async def test_files_have_the_default_limit_and_an_app_that_is_started_twice_asks_once():
    """All files below a path share it."""
    app = site(web.static("/files", Path(__file__).parent), default="2/minute")
    async with served(app) as client, TestClient(TestServer(app)) as second:
        assert await statuses(client, 1, "/files/test_aiohttp.py") == [200]
        assert await statuses(second, 1, "/files/__init__.py", "HEAD") == [200]
        assert await statuses(client, 1, "/files/__init__.py") == [429]


@awaited
async def test_methods_that_few_know_are_limited_too():
    """A handler of every method gets it."""
    handler = limited("1/minute")(functools.partial(hello))
    async with served(site(web.route("*", "/", handler))) as client:
        assert await statuses(client, 2, "/", "PROPFIND") == [200, 429]


@awaited
async def test_apps_within_apps_are_limited_by_their_whole_path():
    """The same handler under two prefixes has two counts; the policy sees the template; the limits are asked once."""
    seen = []

    def inner() -> web.Application:
        app = web.Application()
        app.add_routes([web.get("/{id}", limited("1/minute")(functools.partial(hello)))])
        return app

    app = site(
        web.get("/", hello),
        policy={"rules": [{"key": lambda view: seen.append(view.route), "missing": "skip", "limits": "9/minute"}]},
        default="3/minute",
    )
    app.add_subapp("/v1", inner())
    nested = web.Application()
    nested.add_subapp("/v2", inner())
    app.add_subapp("/api", nested)
    async with served(app) as client:
        assert await statuses(client, 2, "/v1/7") == [200, 429]
        assert await statuses(client, 2, "/api/v2/7") == [200, 429]
        assert await statuses(client, 1, "/v1/8") == [429]
        assert [route for route, _ in groupby(seen)] == ["/v1/{id}", "/api/v2/{id}", "/v1/{id}"]


@awaited
async def test_limits_of_an_app_within_an_app_rule_there():
    """Its handlers are asked in its own store only; what is outside stays with the limits outside."""
    outside, inside = still(), still()
    inner = web.Application()
    limits = RateLimits(inner, default="2/minute", store=inside)
    inner.add_routes([web.get("/", hello), web.get("/ws", chat)])
    many = {"rules": [{"match": {"path": "/in/ws"}, "key": "ip", "limits": "9/minute"}]}
    app = site(web.get("/", hello), policy=many, default="1/minute", store=outside)
    app.add_subapp("/in", inner)
    async with served(app) as client:
        assert await statuses(client, 3, "/in/") == [200, 200, 429]
        assert await statuses(client, 2, "/") == [200, 429]
        assert [await opened(client, "/in/ws") for _ in range(3)] == [101, 101, 429]
        reset_all(limits)
        async with client.get("/in/") as answer:
            assert answer.headers.getall("RateLimit") == ['"in";r=1;t=30']


def test_mistakes_are_told_where_they_are_made():
    """Twice, too late, on what is no handler, and in the limit itself."""
    app = site()
    with pytest.raises(InvalidCall, match="already has a RateLimits; create one for each app"):
        RateLimits(app)
    app.freeze()
    with pytest.raises(InvalidCall, match="where it is created"):
        RateLimits(app)
    with pytest.raises(InvalidCall, match=r"expected a handler or a web\.View"):
        limited("1/minute")(Handlers)
    with pytest.raises(HeadgateError, match="fortnight"):
        limited("1/fortnight")
