"""aiohttp: limits among the app's middlewares, whatever these do with a request or a refusal."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from typing import Any

import pytest
from aiohttp import web
from aiohttp.typedefs import Handler

from headgate.web.aiohttp import RateLimitExceeded, limited
from tests.support.awaiting import awaited
from tests.support.stores import away as store_away
from tests.web.test_aiohttp import WRONG, hello, login, served, site, statuses

pytestmark = pytest.mark.engineless


@web.middleware
async def authenticate(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Whom a header names."""
    request[USER] = request.headers.get("X-User", "nobody")
    return await handler(request)


USER: Any = web.RequestKey("user", str) if hasattr(web, "RequestKey") else "user"


@web.middleware
async def apologize(request: web.Request, handler: Handler) -> web.StreamResponse:
    """The app's own answer to a refusal."""
    try:
        return await handler(request)
    except RateLimitExceeded as error:
        kind = isinstance(error, web.HTTPTooManyRequests)
        return web.json_response({"sorry": error.headers["Retry-After"], "429": kind}, status=error.status)


@awaited
async def test_middlewares_that_are_there_already_come_before_the_limits_of_handlers():
    """They know the user, and may answer a refusal in their own words: the fields are added."""

    @limited("1/minute", key=lambda request: request[USER])
    async def handler(request: web.Request) -> web.Response:
        return web.Response()

    async with served(site(web.get("/", handler), middlewares=[apologize, authenticate])) as client:
        asked = [(await statuses(client, 1, headers={"X-User": user}))[0] for user in ("ann", "bob")]
        assert asked == [200, 200]
        async with client.get("/", headers={"X-User": "ann"}) as answer:
            assert (answer.status, await answer.json()) == (429, {"sorry": "60", "429": True})
            assert answer.headers.getall("Retry-After") == ["60"]
            assert answer.headers["RateLimit"].endswith(";r=0;t=60")
            assert answer.headers["Content-Type"] == "application/json; charset=utf-8"


@awaited
async def test_what_a_middleware_sees():
    """Nothing that the policy refuses; everything that a handler's limits refuse, whenever it was added."""
    seen: list[str] = []

    def noting(name: str) -> Any:
        @web.middleware
        async def note(request: web.Request, handler: Handler) -> web.StreamResponse:
            seen.append(name)
            return await handler(request)

        return note

    policy = {"rules": [{"match": {"path": "/"}, "key": "ip", "limits": "1/minute"}]}
    app = site(
        web.get("/", hello), web.get("/b", hello), policy=policy, default="1/minute", middlewares=[noting("early")]
    )
    app.middlewares.append(noting("late"))
    async with served(app) as client:
        assert await statuses(client, 2, "/") == [200, 429] and seen == ["early", "late"]
        assert await statuses(client, 2, "/b") == [200, 429] and seen == ["early", "late"] * 3


@web.middleware
async def clones(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Set the client's address, as middlewares behind a proxy do."""
    return await handler(request.clone(remote="203.0.113.7"))


@web.middleware
async def bounds_time(request: web.Request, handler: Handler) -> web.StreamResponse:
    """In a task of its own."""
    return await asyncio.ensure_future(handler(request))


@web.middleware
async def tries_again(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Whatever came of the first time."""
    with contextlib.suppress(web.HTTPException):
        await handler(request)
    return await handler(request)


@pytest.mark.parametrize("how", ["return=200", "return=401", "raise=401", "raise=500"])
@pytest.mark.parametrize("around", [clones, bounds_time])
@pytest.mark.parametrize(
    "policy", [None, {"rules": [{"match": {"path": "/other"}, "key": "ip", "limits": "1/minute"}]}]
)
@awaited
async def test_a_middleware_may_clone_the_request_or_answer_it_in_another_task(policy, around, how, caplog):
    """The answer says what is left all the same, and counts by its status."""
    caplog.set_level(logging.CRITICAL)
    status = int(how[-3:])
    handler = limited("1/minute", count=WRONG)(functools.partial(login))
    async with served(site(web.get("/", handler), policy=policy, middlewares=[around])) as client:
        async with client.get(f"/?{how}") as answer:
            left = '"route";r=0;t=60' if status == 401 else '"route";r=1;t=0'
            assert answer.status == status and answer.headers.getall("RateLimit") == [left]
        again = await statuses(client, 1, "/?return=200")
        assert again == ([429] if status == 401 else [200])


@awaited
async def test_a_handler_that_is_called_twice_is_asked_twice():
    """A middleware tries again: both calls count, and nothing stays reserved."""
    handler = limited("3/minute", count=WRONG)(functools.partial(login))
    async with served(site(web.get("/", handler), middlewares=[tries_again])) as client:
        assert await statuses(client, 3, "/?return=200") == [200] * 3
        assert await statuses(client, 2, "/?return=401") == [401, 429]


@awaited
async def test_the_class_of_a_refusal_follows_its_status():
    """Denied by a list: 403; no answer from the store: 503. Both are a `RateLimitExceeded`."""
    seen: list[Exception] = []

    @web.middleware
    async def note(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except RateLimitExceeded as error:
            seen.append(error)
            raise

    rule = {"key": "ip", "limits": "1/minute", "on_error": "deny"}
    policy = {"rules": [rule], "deny": {"header": {"x-bad": True}}}
    app = site(policy=policy, store=store_away())
    app.middlewares.insert(0, note)
    async with served(app) as client:
        assert await statuses(client, 1, headers={"X-Bad": "1"}) == [403]
        assert await statuses(client, 1) == [503]
    denied, away = seen
    assert isinstance(denied, web.HTTPForbidden) and isinstance(away, web.HTTPServiceUnavailable)
