"""Functions of an app that have to be awaited: resolved before the decision, or an error when the app starts."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from aiohttp import web
from fastapi import Depends, FastAPI, Request
from starlette.testclient import TestClient

from headgate import InvalidCall, InvalidPolicy
from headgate.shed import current_class
from headgate.web import aiohttp, wsgi
from headgate.web.asgi import RateLimitMiddleware
from headgate.web.fastapi import RateLimits, limit
from headgate.web.grpc import limited
from tests.support.edges import asgi, get, still
from tests.support.grpc_servers import AsyncEcho, serving

pytestmark = pytest.mark.engineless


async def hello(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


async def by_header(view: Any) -> str | None:
    await asyncio.sleep(0)
    found: str | None = view.header("x-user")
    return found


async def by_plan(view: Any) -> str:
    await asyncio.sleep(0)
    return "3/hour" if view.header("x-plan") else "1/hour"


async def in_bulk(view: Any) -> int:
    await asyncio.sleep(0)
    return int(view.header("x-cost") or 1)


async def is_admin(view: Any) -> bool:
    await asyncio.sleep(0)
    return bool(view.header("x-admin"))


def asked(app: Any, *users: str, **headers: str) -> list[int]:
    """Return the statuses of requests by these users."""
    return [asgi(app, "GET", "/", {**headers, "x-user": user}).status for user in users]


def test_every_field_of_a_rule_may_be_awaited():
    """The key, the limits, the cost and the exemption of a request, in front of an ASGI app."""
    rule = {"name": "api", "key": by_header, "limits": by_plan, "cost": in_bulk, "exempt": is_admin}
    app = RateLimitMiddleware(hello, {"rules": [rule]}, store=still())
    assert asked(app, "ann", "ann", "ben") == [200, 429, 200]
    assert asked(app, "cat", "cat", **{"x-plan": "big", "x-cost": "3"}) == [200, 429]
    assert asked(app, "ann", "ann", **{"x-admin": "1"}) == [200, 200]


def test_functions_are_awaited_only_where_their_rule_applies():
    """A request to another path runs none of them."""
    calls = []

    async def key(view: Any) -> str:
        calls.append(view.path)
        return "k"

    awaited = {"name": "a", "match": {"path": "/a"}, "key": key, "limits": "1/hour"}
    plain = {"name": "b", "key": "ip", "limits": "9/hour"}
    app = RateLimitMiddleware(hello, {"rules": [awaited, plain]}, store=still())
    assert [asgi(app, "GET", path).status for path in ("/b", "/a", "/a", "/b")] == [200, 200, 429, 200]
    assert calls == ["/a", "/a"]


def test_user_and_plan_may_be_awaited():
    """The options of an edge; rules by address keep their fast path."""

    async def user(scope: Any) -> str:
        await asyncio.sleep(0)
        return str(dict(scope["headers"])[b"x-user"].decode())

    async def plan(view: Any) -> str | None:
        await asyncio.sleep(0)
        return "big" if view.user == "ann" else None

    rule = {"name": "api", "key": "user", "limits": {"default": "1/hour", "big": "2/hour"}}
    app = RateLimitMiddleware(hello, {"rules": [rule]}, store=still(), user=user, plan=plan)
    assert asked(app, "ann", "ann", "ann", "ben", "ben") == [200, 200, 429, 200, 429]
    app = RateLimitMiddleware(hello, {"rules": [{**rule, "limits": "1/hour"}]}, store=still(), user=user)
    assert asked(app, "ann", "ann", "ben") == [200, 429, 200]


async def request_user(request: Request) -> str:
    await asyncio.sleep(0)
    return request.headers["x-user"]


def test_an_endpoint_of_fastapi_awaits_its_key():
    """As a dependency; the function gets the request."""
    app = FastAPI()
    RateLimits(app, store=still())

    @app.get("/", dependencies=[Depends(limit("1/hour", key=request_user))])
    def read() -> None: ...

    client = TestClient(app)
    assert [client.get("/", headers={"x-user": user}).status_code for user in ("a", "a", "b")] == [200, 429, 200]


def test_a_handler_of_aiohttp_awaits_its_key():
    """As a decorator; the function gets the request."""

    async def key(request: web.Request) -> str:
        await asyncio.sleep(0)
        return request.headers["x-user"]

    @aiohttp.limited("1/hour", key=key)
    async def read(request: web.Request) -> web.Response:
        return web.Response()

    async def story() -> list[int]:
        from aiohttp.test_utils import TestClient as Client
        from aiohttp.test_utils import TestServer

        app = web.Application()
        app.router.add_get("/", read)
        aiohttp.RateLimits(app, store=still())
        async with Client(TestServer(app)) as client:
            return [(await client.get("/", headers={"x-user": user})).status for user in ("a", "a", "b")]

    assert asyncio.run(story()) == [200, 429, 200]


async def by_message(rpc: Any) -> str:
    await asyncio.sleep(0)
    return str(rpc.message.decode())


class Limited(AsyncEcho):
    """A service whose method has a key that is awaited."""

    @limited("1/hour", key=by_message)
    async def Unary(self, request: bytes, context: Any) -> bytes:  # type: ignore[override]
        return request


def test_a_load_shedder_awaits_the_plan_of_a_request():
    """A class by plan is the one of the plan; the rules after it use the same plan, and do not ask twice."""
    asked: list[str] = []
    told: list[Any] = []

    async def plan(view: Any) -> str:
        await asyncio.sleep(0)
        asked.append(view.path)
        return "pro"

    async def app(scope: Any, receive: Any, send: Any) -> None:
        told.append(current_class())
        await hello(scope, receive, send)

    rule = {"name": "api", "key": "ip", "limits": {"default": "1/hour", "pro": "2/hour"}}
    shed = {"limit": 9, "classes": {"critical": {"plan": "pro"}}}
    limits = RateLimitMiddleware(app, {"rules": [rule], "shed": shed}, store=still(), plan=plan)
    assert [asgi(limits, "GET", "/a").status for _ in range(3)] == [200, 200, 429]
    assert (told, asked) == (["critical"] * 2, ["/a"] * 3)


def test_a_load_shedder_awaits_the_claims_of_requests_that_wait():
    """Two customers at one address are served in turn, as they are with a function that need not be awaited."""
    served: list[str] = []

    async def claims(scope: Any) -> dict[str, str]:
        await asyncio.sleep(0)
        return {"org": dict(scope["headers"])[b"x-org"].decode()}

    async def main() -> None:
        free = asyncio.Semaphore(0)

        async def app(scope: Any, receive: Any, send: Any) -> None:
            served.append(dict(scope["headers"])[b"x-org"].decode())
            await free.acquire()
            await hello(scope, receive, send)

        shed = {"limit": 4, "timeout": "60s", "tenant": {"claim": "org"}}
        limits = RateLimitMiddleware(app, {"rules": [], "shed": shed}, claims=claims)
        assert limits.shedder is not None
        names = ["first"] * 4 + ["a", "a", "b", "b"]
        tasks = [asyncio.create_task(get(limits, "GET", "/", {"x-org": name})) for name in names]
        while limits.shedder.stats().waiting < 4:
            await asyncio.sleep(0)
        for count in range(5, 9):
            free.release()
            while len(served) < count:
                await asyncio.sleep(0)
        for _ in range(4):
            free.release()
        await asyncio.gather(*tasks)

    asyncio.run(asyncio.wait_for(main(), 60))
    assert served[4:] == ["a", "b", "a", "b"]


def test_a_method_of_a_grpc_server_in_a_loop_awaits_its_key():
    """As a decorator; the function gets the call."""
    with serving("loop", echo=Limited()) as server:
        codes = [server.ask("Unary", message).code for message in (b"a", b"a", b"b")]
    assert codes == [grpc.StatusCode.OK, grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.OK]


def test_an_edge_in_threads_says_so_when_the_app_starts():
    """For the rules of its policy and for its options."""

    async def user(environ: Any) -> str:
        return "k"

    policy = {"rules": [{"name": "api", "key": by_header, "limits": "1/hour"}]}
    with pytest.raises(InvalidPolicy, match="rule api: .*by_header.* has to be awaited, which ASGI"):
        wsgi.RateLimitMiddleware(lambda *_: [], policy)
    with pytest.raises(InvalidCall, match="user: .* has to be awaited"):
        wsgi.RateLimitMiddleware(lambda *_: [], {"rules": [], "headers": "draft-6"}, user=user)


def test_a_condition_cannot_be_awaited():
    """The rules of a request are found before anything is awaited."""
    with pytest.raises(InvalidPolicy, match="expected a plain function"):
        RateLimitMiddleware(hello, {"rules": [{"match": is_admin, "key": "ip", "limits": "1/hour"}]})
