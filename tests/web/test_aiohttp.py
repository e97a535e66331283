"""aiohttp: whatever a handler is and however it answers, its limits hold and its answer says what is left."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import socket
import tempfile
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import aiohttp
import pytest
from aiohttp import WSMsgType, web
from aiohttp.test_utils import TestClient, TestServer
from aiohttp.typedefs import Handler

from headgate import HeadgateError, InvalidCall, MemoryStore
from headgate.testing import reset_all
from headgate.web.aiohttp import RateLimitExceeded, RateLimits, exempt, limited
from tests.support.awaiting import awaited
from tests.support.edges import still
from tests.support.stores import away as store_away

pytestmark = pytest.mark.engineless

WRONG = {"when": {"status": [401, 403]}}
POLICY: dict[str, Any] = {"rules": [{"name": "api", "key": "ip", "limits": "2/minute"}]}
Client: TypeAlias = "TestClient[web.Request, web.Application]"


class Cancelling(TestServer):
    """Cancels the handlers of clients who go away, in every version of aiohttp."""

    async def _make_runner(self, **options: Any) -> web.AppRunner:
        return web.AppRunner(self.app, **{**options, "handler_cancellation": True})


@contextlib.asynccontextmanager
async def served(app: web.Application, server: type[TestServer] = TestServer) -> AsyncIterator[Any]:
    """A client of an app."""
    async with TestClient(server(app)) as client:
        yield client


async def hello(request: web.Request) -> web.Response:
    """200 and a word."""
    return web.Response(text="hello")


def site(*routes: web.RouteDef, policy: Any = None, middlewares: Any = (), **options: Any) -> web.Application:
    """An app with these routes and these limits."""
    app = web.Application(middlewares=middlewares)
    RateLimits(app, policy, **{"store": still(), **options})
    app.add_routes(routes or [web.get("/", hello)])
    return app


async def statuses(client: Client, times: int, path: str = "/", method: str = "GET", **more: Any) -> list[int]:
    """The same request again and again."""
    found = []
    for _ in range(times):
        async with client.request(method, path, **more) as answer:
            found.append(answer.status)
    return found


async def stream(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    await response.write(b"hel")
    await response.write_eof(b"lo")
    return response


async def moved(request: web.Request) -> web.Response:
    raise web.HTTPFound("/elsewhere")


async def broken(request: web.Request) -> web.Response:
    raise LookupError("mine")


async def late(request: web.Request) -> web.Response:
    raise TimeoutError


async def nothing(request: web.Request) -> Any:
    return None


@pytest.mark.parametrize(
    ("path", "method", "status"),
    [
        ("/stream", "GET", 200), ("/moved", "GET", 302), ("/broken", "GET", 500), ("/late", "GET", 504),
        ("/nothing", "GET", 500), ("/nowhere", "GET", 404), ("/stream", "POST", 405),
        ("/files/test_aiohttp.py", "GET", 200), ("/files/test_aiohttp.py", "HEAD", 200),
    ],
)  # fmt: skip
@awaited
async def test_every_answer_says_what_is_left(path, method, status, caplog):
    """Streams, errors that are raised, errors that nobody handles, files, and what is not there."""
    caplog.set_level(logging.CRITICAL)
    routes = [web.get("/" + each.__name__, each) for each in (stream, moved, broken, late, nothing)]
    app = site(*routes, web.static("/files", Path(__file__).parent), policy=POLICY)
    async with served(app) as client:
        async with client.request(method, path, allow_redirects=False) as answer:
            assert (answer.status, answer.headers.getall("RateLimit")) == (status, ['"api";r=1;t=30'])
            await answer.read()
        assert await statuses(client, 2, path, method, allow_redirects=False) == [status, 429]


@awaited
async def test_a_limit_is_of_the_route_not_of_the_url():
    """Path parameters share one count; HEAD is counted with GET; another handler of the path has its own."""

    @limited("3/minute")
    async def read(request: web.Request) -> web.Response:
        return web.Response(text=request.match_info["id"])

    @limited("1/minute")
    async def write(request: web.Request) -> web.Response:
        return web.Response(text="written")

    routes = web.get("/items/{id}", read), web.post("/items/{id}", write), web.get(r"/other/{id:\d+}", read)
    async with served(site(*routes)) as client:
        assert await statuses(client, 1, "/items/1") == [200]
        assert await statuses(client, 1, "/items/2", "HEAD") == [200]
        assert await statuses(client, 2, "/items/3?page=2") == [200, 429]
        assert await statuses(client, 2, "/items/4", "POST") == [200, 429]
        assert await statuses(client, 1, "/other/4") == [200]


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


async def login(request: web.Request) -> web.Response:
    """What the query asks for, returned or raised."""
    if "raise" in request.query:
        raise {"401": web.HTTPUnauthorized, "404": web.HTTPNotFound, "500": LookupError}[request.query["raise"]]
    return web.Response(status=int(request.query["return"]))


@awaited
async def test_a_handler_that_forgets_its_answer_has_failed(caplog):
    """It counts as 500, which is what is sent."""
    caplog.set_level(logging.CRITICAL)
    failing: Any = limited("2/minute", count={"when": {"status": "5xx"}})(functools.partial(nothing))
    async with served(site(web.get("/", failing))) as client:
        assert await statuses(client, 3) == [500, 500, 429]


@pytest.mark.parametrize("by", ["policy", "handler"])
@awaited
async def test_only_wrong_passwords_count(by, caplog):
    """By the status, whether the answer was returned or raised."""
    caplog.set_level(logging.CRITICAL)
    rule: dict[str, Any] = {"key": "ip", "limits": "2/minute", "count": WRONG}
    handler = limited("2/minute", count=WRONG)(functools.partial(login)) if by == "handler" else login
    app = site(web.get("/login", handler), policy={"rules": [rule]} if by == "policy" else None)
    async with served(app) as client:
        for answer in ("return=200", "raise=404", "raise=500", "return=200"):
            assert await statuses(client, 3, f"/login?{answer}") == [int(answer[-3:])] * 3
        assert await statuses(client, 1, "/login?raise=401") == [401]
        assert await statuses(client, 2, "/login?return=401") == [401, 429]


@awaited
async def test_a_client_that_goes_away_is_not_counted():
    """A handler that is cancelled gives back what was reserved for its answer."""
    began, cancelled = asyncio.Semaphore(0), asyncio.Semaphore(0)

    @limited("1/minute", count={"when": {"status": 200}})
    async def slow(request: web.Request) -> web.Response:
        if "slow" in request.query:
            began.release()
            try:
                await asyncio.sleep(60)
            finally:
                cancelled.release()
        return web.Response()

    async with served(site(web.get("/", slow)), Cancelling) as client:
        for _ in range(3):
            asking = asyncio.create_task(statuses(client, 1, "/?slow"))
            await asyncio.wait_for(began.acquire(), 10)
            asking.cancel()
            await asyncio.wait_for(cancelled.acquire(), 10)
        assert await statuses(client, 2) == [200, 429]


@awaited
async def test_the_handler_of_a_client_that_is_gone_already_is_limited_too():
    """Whose connection is lost before its request is looked at does not become nobody, who has no limit."""
    looked, called = asyncio.Semaphore(0), []

    @web.middleware
    async def wait_until_gone(request: web.Request, handler: Handler) -> web.StreamResponse:
        while request.transport is not None:
            await asyncio.sleep(0.001)
        try:
            return await handler(request)
        finally:
            looked.release()

    async def handler(request: web.Request) -> web.Response:
        called.append(request.path)
        return web.Response()

    app = site(web.get("/", handler), policy=POLICY)
    app.middlewares.insert(0, wait_until_gone)
    runner = web.AppRunner(app)  # which cancels nobody, unlike the server for tests
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    for _ in range(4):
        _, writer = await asyncio.open_connection(*runner.addresses[0])
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        await asyncio.wait_for(looked.acquire(), 10)
    await runner.cleanup()
    assert len(called) == 2


@web.middleware
async def authenticate(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Whom a header names."""
    request[USER] = request.headers.get("X-User", "nobody")
    return await handler(request)


USER: Any = web.RequestKey("user", str) if hasattr(web, "RequestKey") else "user"


@web.middleware
async def apologize(request: web.Request, handler: Handler) -> web.StreamResponse:
    """The app's own answer to a no."""
    try:
        return await handler(request)
    except RateLimitExceeded as error:
        kind = isinstance(error, web.HTTPTooManyRequests)
        return web.json_response({"sorry": error.headers["Retry-After"], "429": kind}, status=error.status)


@awaited
async def test_middlewares_that_are_there_already_come_before_the_limits_of_handlers():
    """They know who it is, and may answer a no in their own words: the fields are added."""

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
    """As middlewares do that set right who asks."""
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
    """By a middleware that tries again: both count, and nothing stays reserved."""
    handler = limited("3/minute", count=WRONG)(functools.partial(login))
    async with served(site(web.get("/", handler), middlewares=[tries_again])) as client:
        assert await statuses(client, 3, "/?return=200") == [200] * 3
        assert await statuses(client, 2, "/?return=401") == [401, 429]


class Registered(web.View):
    """A class that keeps a list of its subclasses, each under a name."""

    known: ClassVar[list[type]] = []

    def __init_subclass__(cls, name: str) -> None:
        cls.known.append(cls)


class Reports(Registered, name="reports"):
    """Stays what it is, for whoever looks."""

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


@pytest.mark.parametrize("bound", [False, True])
@awaited
async def test_the_peer_of_a_unix_socket_is_a_proxy_or_nobody(bound):
    """Also one whose own end has a name."""
    app = site(default="1/minute", trusted_proxies=["unix"])
    runner = web.AppRunner(app)
    await runner.setup()
    with tempfile.TemporaryDirectory() as short:
        path = os.path.join(short, "s")
        await web.UnixSite(runner, path).start()
        found = []
        for at, claimed in enumerate(("203.0.113.1", "203.0.113.1", "203.0.113.2")):
            with socket.socket(socket.AF_UNIX) as end:
                if bound:
                    end.bind(os.path.join(short, f"c{at}"))
                end.connect(path)
                reader, writer = await asyncio.open_unix_connection(sock=end)
                writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: %b\r\n\r\n" % claimed.encode())
                found.append(int((await reader.readline()).split()[1]))
                writer.close()
                await writer.wait_closed()
        await runner.cleanup()
    assert found == [200, 429, 200]


async def chat(request: web.Request) -> web.WebSocketResponse:
    """Says everything twice."""
    ws = web.WebSocketResponse()
    await ws.prepare(request)
    async for message in ws:
        await ws.send_str(message.data * 2)
    return ws


async def opened(client: Client, path: str = "/") -> int:
    """The status of a handshake."""
    try:
        async with client.ws_connect(path) as ws:
            await ws.send_str("ha")
            assert await ws.receive_str(timeout=10) == "haha"
            return 101
    except aiohttp.WSServerHandshakeError as refused:
        return refused.status


@pytest.mark.parametrize("by", ["limited", "default", "policy", "policy that names websockets"])
@awaited
async def test_websockets_are_limited_at_the_handshake(by):
    """A no is an HTTP answer, whoever's limit it was; what was open stays open."""
    rule: dict[str, Any] = {"key": "ip", "limits": "2/minute"}
    if by.endswith("websockets"):
        rule["match"] = {"method": "WEBSOCKET"}
    handler = limited("2/minute")(functools.partial(chat)) if by == "limited" else chat
    app = site(
        web.get("/", handler),
        policy={"rules": [rule]} if by.startswith("policy") else None,
        default="2/minute" if by == "default" else None,
    )
    async with served(app) as client, client.ws_connect("/") as first:
        assert [await opened(client) for _ in range(2)] == [101, 429]
        await first.send_str("ho")
        assert await first.receive_str(timeout=10) == "hoho"


@awaited
async def test_to_ask_for_an_upgrade_is_no_way_around_a_limit():
    """A page is a GET whatever the client asks for; a websocket is not counted as one."""
    rules = [
        {"name": "pages", "match": {"method": "GET"}, "key": "ip", "limits": "2/minute"},
        {"name": "sockets", "match": {"method": "WEBSOCKET"}, "key": "ip", "limits": "1/minute"},
    ]
    upgrade = {"Upgrade": "websocket", "Connection": "upgrade"}
    async with served(site(web.get("/", hello), web.get("/ws", chat), policy={"rules": rules})) as client:
        assert await opened(client, "/ws") == 101
        assert await opened(client, "/ws") == 429
        assert await statuses(client, 2, "/", headers=upgrade) == [200, 200]
        assert await statuses(client, 1, "/", headers=upgrade) == [429]


@awaited
async def test_a_message_too_many_closes_the_websocket():
    """With 1008; the handler sees the end of the stream; other connections of other keys go on."""
    ended = asyncio.Event()

    async def noted(request: web.Request) -> web.WebSocketResponse:
        ws = await chat(request)
        ended.set()
        return ws

    rule = {"match": {"method": "MESSAGE"}, "key": {"query": "user"}, "limits": "2/minute"}
    async with (
        served(site(web.get("/", noted), policy={"rules": [rule]})) as client,
        client.ws_connect("/?user=ann") as ann,
        client.ws_connect("/?user=bob") as bob,
    ):
        for _ in range(2):
            await ann.send_str("ha")
            assert await ann.receive_str(timeout=10) == "haha"
        await ann.send_str("ha")
        message = await ann.receive(timeout=10)
        assert (message.type, message.data, message.extra) == (WSMsgType.CLOSE, 1008, "rate limited")
        await asyncio.wait_for(ended.wait(), 10)
        await bob.send_str("ho")
        assert await bob.receive_str(timeout=10) == "hoho"


@awaited
async def test_a_store_that_was_opened_here_is_closed_with_the_app(monkeypatch):
    """A store that the app brings stays open."""
    closed: list[int | None] = []

    class Noted(MemoryStore):
        def close(self) -> None:
            closed.append(self.max_keys)

    monkeypatch.setattr("headgate.stores.MemoryStore", Noted)
    app = site(web.get("/", hello), default="1/minute", store="memory://?max_keys=10")
    app.add_subapp("/in", site(web.get("/", hello), store=Noted(max_keys=20)))
    async with served(app) as client:
        assert await statuses(client, 2) == [200, 429]
    assert closed == [10]


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


def in_a_thread(call: Callable[[], Any]) -> Any:
    """What a call gives in a thread that is not the main one, where no module runs and no event loop is."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(call).result()


@awaited
async def test_limits_can_be_made_in_any_thread():
    """As tests and servers do that run an app beside another; each app's limits are its own."""
    outer = in_a_thread(lambda: site(web.get("/", hello), default="2/minute"))
    outer.add_subapp("/inner", in_a_thread(lambda: site(web.get("/", hello), default="1/minute")))
    async with served(outer) as client:
        paths = ["/", "/", "/", "/inner/", "/inner/"]
        assert [(await client.get(path)).status for path in paths] == [200, 200, 429, 200, 429]
