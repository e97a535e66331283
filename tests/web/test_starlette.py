"""Starlette: limits at endpoints of every kind, whatever is around them, and nothing charged for what is refused."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

import pytest
from starlette.applications import Starlette
from starlette.authentication import AuthCredentials, AuthenticationBackend, SimpleUser, requires
from starlette.background import BackgroundTask
from starlette.endpoints import HTTPEndpoint, WebSocketEndpoint
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Host, Mount, Route, Router, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.testclient import TestClient
from starlette.websockets import WebSocket, WebSocketDisconnect

from headgate import MemoryStore
from headgate.errors import HeadgateError, InvalidCall
from headgate.testing import ManualClock, frozen
from headgate.web.starlette import (
    Limit,
    RateLimitExceeded,
    RateLimits,
    exempt,
    limited,
    send_refusal,
)
from tests.support.awaiting import awaited
from tests.support.edges import LATER, PEER, exchange, get, scope, still

pytestmark = pytest.mark.engineless

EVERYONE = {"rules": [{"name": "all", "key": "everyone", "limits": "5/hour"}]}


async def hello(request: Request) -> Response:
    return PlainTextResponse("hello")


def hello_in_a_thread(request: Request) -> Response:
    return PlainTextResponse(str(threading.get_ident()))


A = TypeVar("A", bound=Starlette)


class Site(Generic[A]):
    """An app with limits, by a clock that stands still, and a client of it."""

    def __init__(self, app: A, kind: Any = RateLimits, **options: Any) -> None:
        self.clock = ManualClock(LATER)
        self.app = app
        self.limits = kind(self.app, **{"store": MemoryStore(clock=self.clock), **options})
        self.client = TestClient(self.app, raise_server_exceptions=False)

    def codes(self, *paths: str, times: int = 1, **headers: str) -> list[int]:
        """The statuses of GETs, one after the other."""
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        return [self.client.get(path, headers=given).status_code for path in paths * times]


def serve(*routes: BaseRoute, **options: Any) -> Site[Starlette]:
    """An app of these routes."""
    return Site(Starlette(routes=routes), **options)


def names_in(field: str) -> list[str]:
    """The policies that are told."""
    return [each.split(";")[0] for each in field.split(", ")]


# What is counted


def test_an_endpoint_without_async_still_runs_in_a_thread():
    """It is asked in the event loop and runs beside it."""
    site = serve(Route("/x", limited("1/hour")(hello_in_a_thread)), Route("/loop", limited("1/hour")(hello)))
    answer = site.client.get("/x")
    assert answer.status_code == 200 and int(answer.text) != threading.get_ident()
    assert site.codes("/x") == [429]


def test_each_endpoint_has_counts_of_its_own():
    """One function at two paths is two endpoints, and so are two functions at one path."""
    once = limited("1/hour")(hello)

    @limited("1/hour")
    async def post(request: Request) -> Response:
        return PlainTextResponse("posted")

    site = serve(Route("/x", once), Route("/y", once), Route("/x", post, methods=["POST"]))
    assert site.codes("/x", "/y", "/x", "/y") == [200, 200, 429, 429]
    assert [site.client.post("/x").status_code for _ in range(2)] == [200, 429]


# Several limits


def test_a_decorator_between_two_limits_still_runs():
    """What is between them is not lost, and what both count is counted once each."""

    def allowed(endpoint: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(endpoint)
        async def wrapper(request: Request) -> Any:
            if "x-key" not in request.headers:
                raise HTTPException(401)
            return await endpoint(request)

        return wrapper

    site = serve(Route("/x", limited("3/hour")(allowed(limited("2/day")(hello)))))
    assert site.codes("/x") == [401]
    answer = site.client.get("/x", headers={"x-key": "ann"})
    assert (answer.status_code, answer.headers["ratelimit"]) == (200, '"x";r=1;t=2400, "x-2";r=1;t=43200')
    assert site.codes("/x", "/x", x_key="ann") == [200, 429]


def test_starlettes_own_requires_goes_with_it_on_both_sides():
    """`requires` looks for a parameter called request, which the wrapper keeps."""

    class Backend(AuthenticationBackend):
        async def authenticate(self, conn: Any) -> Any:
            name = conn.headers.get("x-user")
            return None if name is None else (AuthCredentials(["authenticated"]), SimpleUser(name))

    inner = limited("1/hour", key="user")(requires("authenticated")(hello))
    outer = requires("authenticated")(limited("1/hour", key="user")(hello))
    app = Starlette(
        routes=[Route("/in", inner), Route("/out", outer)],
        middleware=[Middleware(AuthenticationMiddleware, backend=Backend())],
    )
    site = Site(app)
    assert site.codes("/in", "/out") == [403, 403]
    assert site.codes("/in", "/out", times=2, x_user="ann") == [200, 200, 429, 429]
    assert site.codes("/in", "/out", x_user="bob") == [200, 200]


# After the response


def login(limit: Callable[[Any], Any], gate: asyncio.Event) -> Starlette:
    """Every attempt fails, when the gate opens."""

    async def attempt(request: Request) -> Response:
        await gate.wait()
        return PlainTextResponse("wrong", 401 if request.headers.get("x-wrong") else 200)

    return Starlette(routes=[Route("/login", limit(attempt))])


@awaited
async def test_a_client_that_goes_away_has_not_failed():
    """What was reserved for its answer is given back."""
    gate = asyncio.Event()
    app = login(limited("1/hour", count={"when": {"status": [401]}}), gate)
    RateLimits(app, store=still())
    gone = asyncio.create_task(get(app, "GET", "/login", headers={"x-wrong": "1"}))
    await asyncio.sleep(0.01)
    assert (await get(app, "GET", "/login")).status == 429
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    gate.set()
    assert [(await get(app, "GET", "/login", headers={"x-wrong": "1"})).status for _ in range(2)] == [401, 429]


# Every response


async def teapot(request: Request) -> Response:
    raise HTTPException(418, "short and stout", {"x-pot": "1"})


def test_an_http_exception_keeps_its_headers_and_tells_what_is_left():
    """An error that the endpoint raises is answered by Starlette, with the fields of the endpoint."""
    answer = serve(Route("/teapot", limited("9/hour")(teapot))).client.get("/teapot")
    assert (answer.status_code, answer.headers["x-pot"]) == (418, "1")
    assert answer.headers["ratelimit"] == '"teapot";r=8;t=400'


def test_streams_files_and_background_tasks_are_the_apps_own(tmp_path):
    """Byte for byte, and after the response."""
    file = tmp_path / "file.bin"
    file.write_bytes(bytes(range(256)) * 1000)
    ran: list[str] = []

    async def stream(request: Request) -> Response:
        async def pieces() -> Any:
            for at in range(100):
                yield bytes([at]) * at

        return StreamingResponse(pieces(), background=BackgroundTask(ran.append, "task"))

    def download(request: Request) -> Response:
        return FileResponse(file)

    site = serve(Route("/stream", limited("1/hour")(stream)), Route("/file", limited("2/hour")(download)))
    answer = site.client.get("/stream")
    assert answer.content == b"".join(bytes([at]) * at for at in range(100))
    assert (answer.headers["ratelimit"], ran) == ('"stream";r=0;t=3600', ["task"])
    assert site.client.get("/file").content == file.read_bytes()
    part = site.client.get("/file", headers={"range": "bytes=10-19"})
    assert (part.status_code, part.content) == (206, file.read_bytes()[10:20])
    assert site.codes("/stream", "/file") == [429, 429] and ran == ["task"]


def test_middleware_in_between_changes_nothing():
    """Also Starlette's old kind, which runs the app in another task; and it sees the refusals."""
    seen = []

    class Old(BaseHTTPMiddleware):
        async def dispatch(self, request: Request, call_next: Any) -> Response:
            response: Response = await call_next(request)
            seen.append(response.status_code)
            response.headers["x-old"] = "1"
            return response

    app = Starlette(routes=[Route("/x", limited("1/hour")(hello))], middleware=[Middleware(Old), Middleware(Old)])
    site = Site(app)
    first, second = site.client.get("/x"), site.client.get("/x")
    assert (first.status_code, first.headers["ratelimit"], first.headers["x-old"]) == (200, '"x";r=0;t=3600', "1")
    assert (second.status_code, second.headers["retry-after"], second.headers["x-old"]) == (429, "3600", "1")
    assert seen == [200, 200, 429, 429]


def test_a_refusal_at_an_endpoint_passes_the_cors_middleware():
    """A browser may read it; what one response was given is not in the next."""
    site = serve(Route("/x", limited("1/hour")(hello)))
    site.app.add_middleware(CORSMiddleware, allow_origins=["https://a.example", "https://b.example"])
    answers = [site.client.get("/x", headers={"origin": f"https://{each}.example"}) for each in "aab"]
    assert [answer.status_code for answer in answers] == [200, 429, 429]
    assert [answer.headers.get_list("access-control-allow-origin") for answer in answers] == [
        ["https://a.example"],
        ["https://a.example"],
        ["https://b.example"],
    ]
    assert ["Retry-After" in each.headers["access-control-expose-headers"] for each in answers] == [True] * 3


# What a no looks like


def own(request: Request, error: Exception) -> Response:
    assert isinstance(error, RateLimitExceeded)
    return JSONResponse({"slow": "down"}, error.status_code, headers=error.headers)


def forgetful(request: Request, error: Exception) -> Response:
    assert isinstance(error, RateLimitExceeded)
    return JSONResponse({"slow": "down"}, error.status_code)


def with_handler_before() -> Site[Starlette]:
    routes = [Route("/x", limited("1/hour")(hello))]
    return Site(Starlette(routes=routes, exception_handlers={RateLimitExceeded: own}))


def with_handler_after() -> Site[Starlette]:
    site = serve(Route("/x", limited("1/hour")(hello)))
    site.app.add_exception_handler(RateLimitExceeded, own)
    return site


def with_handler_of_429() -> Site[Starlette]:
    return Site(Starlette(routes=[Route("/x", limited("1/hour")(hello))], exception_handlers={429: forgetful}))


@pytest.mark.parametrize("make", [with_handler_before, with_handler_after, with_handler_of_429])
def test_the_apps_own_handler_comes_first(make):
    """Wherever it was installed; the fields are the exception's headers, added where it forgets them."""
    site = make()
    assert site.codes("/x") == [200]
    answer = site.client.get("/x")
    assert (answer.status_code, answer.json()) == (429, {"slow": "down"})
    assert (answer.headers["retry-after"], answer.headers["content-type"]) == ("3600", "application/json")


def test_a_handler_of_every_http_error_does_not_hide_the_refusal():
    """It is more special than they are."""
    routes = [Route("/x", limited("1/hour")(hello)), Route("/teapot", teapot)]
    handlers: Any = {HTTPException: lambda request, error: PlainTextResponse("mine", error.status_code)}
    site = Site(Starlette(routes=routes, exception_handlers=handlers))
    assert site.codes("/x") == [200]
    assert site.client.get("/x").headers["content-type"] == "application/problem+json"
    assert site.client.get("/teapot").text == "mine"


# The middleware alone


def test_without_either_an_endpoint_says_what_is_missing():
    """No limit is ever left out silently."""
    app = Starlette(routes=[Route("/x", limited("1/hour")(hello))])
    with pytest.raises(HeadgateError, match=r"limits at endpoints need RateLimits\(app\)"):
        TestClient(app).get("/x")


def test_an_app_that_runs_already_is_told_so():
    """Its middleware cannot be changed any more."""
    app = Starlette(routes=[Route("/x", hello)])
    TestClient(app).get("/x")
    with pytest.raises(InvalidCall, match="where the app is created"):
        RateLimits(app)


# Default limits


def test_default_limits_are_for_endpoints_without_their_own():
    """Per endpoint and method; a partial of an endpoint that is exempt, or has limits, is left alone."""

    async def free(request: Request) -> Response:
        return PlainTextResponse("free")

    site = serve(
        Route("/x", hello),
        Route("/x", hello_in_a_thread, methods=["POST"]),
        Route("/partial", functools.partial(limited("3/hour")(hello))),
        Route("/free", exempt(free)),
        Route("/free/partial", functools.partial(free)),
        Route("/free/limited", limited("3/hour")(free)),
        default="1/hour",
    )
    assert site.codes("/x", "/x") == [200, 429]
    assert [site.client.post("/x").status_code for _ in range(2)] == [200, 429]
    for path in ("/partial", "/free/limited"):
        assert site.codes(path, times=4) == [200, 200, 200, 429]
    assert site.codes("/free", "/free/partial", times=9) == [200] * 18


def test_default_limits_reach_below_mounts_and_hosts(tmp_path):
    """Everywhere once, also where the same routes are in two places; other apps are their own business."""
    routes = [Route("/x", hello), Mount("/deep", routes=[Route("/{id}", hello)])]
    site = serve(
        Mount("/a", routes=routes),
        Mount("/b", routes=routes),
        Mount("/app", Starlette(routes=[Route("/x", hello), Route("/free", exempt(functools.partial(hello)))])),
        Mount("/static", StaticFiles(directory=tmp_path)),
        Host("api.example", Router([Route("/h", hello)])),
        default="2/hour",
    )
    for path in ("/a/x", "/b/x", "/app/x"):
        assert names_in(site.client.get(path).headers["ratelimit"]) == [f'"{path[1:].replace("/", "-")}"']
        assert site.codes(path, times=2) == [200, 429]
    assert site.codes("/a/deep/1", "/a/deep/2", "/a/deep/3", "/b/deep/4") == [200, 200, 429, 200]
    assert site.codes("/h", times=3, host="api.example") == [200, 200, 429]
    assert site.codes("/app/free", times=3) == [200] * 3
    assert site.codes("/static/nothing", times=3) == [404] * 3


def test_a_mounted_app_with_default_limits_has_those_alone():
    """Each around its own."""
    inner = serve(Route("/x", hello), default="1/hour")
    site = serve(Mount("/in", inner.app), Route("/x", hello), default="2/hour")
    assert site.client.get("/in/x").headers["ratelimit"] == '"in-x";r=0;t=3600'
    assert site.codes("/in/x", "/x", "/x", "/x") == [429, 200, 200, 429]


def test_routes_added_while_the_app_starts_are_covered():
    """Plugins often are."""

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> Any:
        app.router.routes.append(Route("/late", hello))
        yield

    site = Site(Starlette(lifespan=lifespan), default="1/hour")
    with site.client:
        assert site.codes("/late", "/late") == [200, 429]


# Mounts


def sub_app() -> Starlette:
    """Made by a function: two of them have endpoints of the same names."""

    @limited("1/hour")
    async def item(request: Request) -> Response:
        return PlainTextResponse(request.url.path)

    return Starlette(routes=[Route("/{id}", item)])


@pytest.mark.parametrize("root_path", ["", "/behind", "/a"])
def test_mounted_apps_have_counts_of_their_own_and_whole_refusals(root_path):
    """By the template of the mount, never the URL; what a server puts in front of every path is no part of it."""
    site = serve(
        Mount("/a", sub_app()), Mount("/b", sub_app()), Mount("/{tenant}", routes=[Mount("/v2", sub_app())]),
    )  # fmt: skip
    site.client = TestClient(site.app, root_path=root_path)
    assert site.codes(*(root_path + path for path in ("/a/1", "/a/2", "/b/1", "/b/2"))) == [200, 429, 200, 429]
    assert site.codes(*(root_path + path for path in ("/acme/v2/1", "/other/v2/2"))) == [200, 429]
    answer = site.client.get(root_path + "/other/v2/3")
    assert (answer.headers["content-type"], answer.json()["violated-policies"]) == (
        "application/problem+json",
        ["tenant-v2-id"],
    )


def test_below_mounts_and_hosts_the_endpoints_own_template_is_found():
    """Where others match the path, too."""
    routes = [
        Route("/{any}", hello, methods=["POST"]),
        Route("/special", limited("1/hour")(hello)),
        Route("/{any}", limited("1/hour")(hello)),
    ]
    site = serve(Mount("/m", routes=routes), Host("api.example", Router([Mount("/h", routes=routes)])))
    assert names_in(site.client.get("/m/special").headers["ratelimit"]) == ['"m-special"']
    assert names_in(site.client.get("/m/other").headers["ratelimit"]) == ['"m-any"']
    answer = site.client.get("/h/other", headers={"host": "api.example"})
    assert names_in(answer.headers["ratelimit"]) == ['"h-any"']


def test_a_mounted_app_with_limits_of_its_own_decides_by_them():
    """Its policy, its store; the one around it tells its own."""
    inner = Site(sub_app(), policy={"rules": [{"name": "inner", "key": "ip", "limits": "9/hour"}]})
    site = serve(Mount("/in", inner.app), policy=EVERYONE)
    answer = site.client.get("/in/1")
    assert answer.headers.get_list("ratelimit-policy") == ['"inner";q=9;w=3600, "in-id";q=1;w=3600', '"all";q=5;w=3600']
    assert site.codes("/in/2") == [429]
    with frozen(inner.limits):
        assert site.codes("/in/2") == [200]


# Endpoints of every kind


def test_endpoint_classes():
    """Decorated as a whole: every method counts; a subclass is what it is."""

    @limited("3/hour")
    class Base(HTTPEndpoint):
        async def get(self, request: Request) -> Response:
            return PlainTextResponse("base")

        def post(self, request: Request) -> Response:
            return PlainTextResponse(str(threading.get_ident()))

    @limited("2/hour", key="everyone")
    class Child(Base):
        async def get(self, request: Request) -> Response:
            return PlainTextResponse("child")

    site = serve(Route("/base", Base), Route("/child", Child), default="1/hour")
    answers = [site.client.get("/base"), site.client.post("/base"), site.client.put("/base"), site.client.get("/base")]
    assert [answer.status_code for answer in answers] == [200, 200, 405, 429]
    assert answers[0].text == "base" and int(answers[1].text) != threading.get_ident()
    assert site.client.get("/child").text == "child"
    assert names_in(site.client.get("/child").headers["ratelimit"]) == ['"child"', '"child-2"']
    assert site.codes("/child") == [429]


def test_methods_of_a_class_have_counts_of_their_own():
    """Decorated one by one."""

    class Items(HTTPEndpoint):
        @limited("1/hour")
        async def get(self, request: Request) -> Response:
            return PlainTextResponse("got")

        @limited("1/hour")
        def post(self, request: Request) -> Response:
            return PlainTextResponse("posted")

    site = serve(Route("/x", Items))
    assert [site.client.get("/x").text, site.client.post("/x").text] == ["got", "posted"]
    assert [site.client.get("/x").status_code, site.client.post("/x").status_code] == [429, 429]


def test_partials_methods_and_asgi_objects():
    """Whatever Starlette takes as an endpoint."""

    async def greet(greeting: str, request: Request) -> Response:
        return PlainTextResponse(greeting)

    class Service:
        async def greet(self, request: Request) -> Response:
            return PlainTextResponse("method")

        async def free(self, request: Request) -> Response:
            return PlainTextResponse("free")

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            await PlainTextResponse("object")(scope, receive, send)

    once = limited("1/hour")
    site = serve(
        Route("/partial", once(functools.partial(greet, "partial"))),
        Route("/around", functools.partial(once(greet), "around")),
        Route("/method", once(Service().greet)),
        Route("/object", once(limited("9/hour", key="everyone")(Service()))),
        Route("/free", exempt(Service().free)),
        default="1/hour",
    )
    for path in ("/partial", "/around", "/method", "/object"):
        answers = [site.client.get(path) for _ in range(2)]
        assert (answers[0].text, [answer.status_code for answer in answers]) == (path[1:], [200, 429])
    assert site.codes("/free", times=3) == [200] * 3
    assert site.app.url_path_for("Service") == "/object"


def test_what_cannot_be_limited_is_refused_where_it_is_written():
    """With what to do instead."""

    def stream(request: Request) -> Iterator[str]:
        yield ""

    class App: ...

    with pytest.raises(InvalidCall, match="write Depends"):
        limited("1/hour")(stream)
    with pytest.raises(InvalidCall, match="endpoint classes"):
        limited("1/hour")(App)


def test_an_endpoint_called_without_a_request_says_so():
    """As a test may do; what is inside has no limits."""
    endpoint: Any = limited("1/hour")(hello)
    with pytest.raises(HeadgateError, match="called without a request"):
        asyncio.run(endpoint())
    assert asyncio.run(endpoint.__wrapped__(Request(scope()))).body == b"hello"


# Websockets


async def echo(websocket: WebSocket) -> None:
    await websocket.accept()
    with contextlib.suppress(WebSocketDisconnect):
        while True:
            await websocket.send_text(await websocket.receive_text())


class Echo(WebSocketEndpoint):
    encoding = "text"

    async def on_receive(self, websocket: WebSocket, data: Any) -> None:
        await websocket.send_text(data)


SOCKET = {"type": "websocket", "path": "/ws", "query_string": b"", "headers": [], "client": (PEER, 4711)}
CONNECT = {"type": "websocket.connect"}
LEAVES = {"type": "websocket.disconnect", "code": 1000}


def talk(app: Any, *messages: str, **more: Any) -> list[dict[str, Any]]:
    """Everything a websocket is sent that says these things and leaves."""
    says = [{"type": "websocket.receive", "text": each} for each in messages]
    return asyncio.run(exchange(app, {**SOCKET, **more}, CONNECT, *says, LEAVES))


def kinds(sent: list[dict[str, Any]]) -> list[str]:
    return [message["type"].removeprefix("websocket.") for message in sent]


@pytest.mark.parametrize("endpoint", [echo, Echo])
def test_a_websocket_too_many_is_closed_once_or_answered_once(endpoint):
    """With the whole refusal where the server can send it."""
    app = serve(WebSocketRoute("/ws", limited("1/hour")(endpoint))).app
    assert kinds(talk(app, "a")) == ["accept", "send"]
    assert talk(app, "a") == [{"type": "websocket.close", "code": 1008, "reason": "rate limited"}]
    start, body = talk(app, "a", extensions={"websocket.http.response": {}})
    assert (start["type"], start["status"]) == ("websocket.http.response.start", 429)
    assert dict(start["headers"])[b"retry-after"] == b"3600"
    assert (body["type"], b"quota-exceeded" in body["body"]) == ("websocket.http.response.body", True)


@pytest.mark.parametrize("endpoint", [echo, Echo])
def test_each_message_counts_where_the_limit_says_so(endpoint):
    """By the client, over all of its connections; connections have a count of their own."""
    talking = limited("3/hour")(limited("3/hour", messages=True)(endpoint))
    app = serve(WebSocketRoute("/ws", talking), default="1/hour").app
    assert kinds(talk(app, "a", "b")) == ["accept", "send", "send"]
    sent = talk(app, "c", "d", "e")
    assert kinds(sent) == ["accept", "send", "close"] and sent[-1]["code"] == 1008
    assert kinds(talk(app)) == ["accept"]
    assert kinds(talk(app)) == ["close"]


def test_default_limits_are_for_websockets_too():
    """An endpoint like any other."""
    app = serve(WebSocketRoute("/ws", echo), WebSocketRoute("/class", Echo), default="1/hour").app
    assert [kinds(talk(app)), kinds(talk(app))] == [["accept"], ["close"]]
    assert [kinds(talk(app, path="/class")), kinds(talk(app, path="/class"))] == [["accept"], ["close"]]


def test_a_limit_asked_by_hand_after_the_handshake_closes():
    """The handshake cannot be answered twice."""
    limit = Limit("1/hour")

    async def endpoint(websocket: WebSocket) -> None:
        await websocket.accept()
        await limit(websocket)
        await limit(websocket)

    app = serve(WebSocketRoute("/ws", endpoint), default=None).app
    assert kinds(talk(app, extensions={"websocket.http.response": {}})) == ["accept"]
    assert kinds(talk(app, extensions={"websocket.http.response": {}})) == ["accept", "close"]


# Tests of the app's own


def test_several_loops_and_clients_share_one_app():
    """A test client without a context runs each request in a loop of its own."""
    site = serve(Route("/x", limited("2/hour")(hello)))
    assert [TestClient(site.app).get("/x").status_code for _ in range(3)] == [200, 200, 429]
    for _ in range(2):
        with TestClient(site.app) as client:
            assert client.get("/x").status_code == 429


# Stores


def test_redis_is_awaited_in_the_event_loop(server):
    """The count is exact; the store closes with the app, and the app may start again."""
    app = Starlette(routes=[Route("/x", limited("5/hour")(hello_in_a_thread))])
    limits = RateLimits(app, store=f"{server.url}?deadline=5")

    async def story() -> list[int]:
        answers = await asyncio.gather(*(get(app, "GET", "/x") for _ in range(20)))
        await limits.aclose()
        return sorted(answer.status for answer in answers)

    assert asyncio.run(story()) == [200] * 5 + [429] * 15
    for left in ("4", "3"):
        with TestClient(app) as client:
            assert client.get("/x").headers["ratelimit"].startswith(f'"x";r={left};')
    assert not [each for each in server.client().client_list() if each["cmd"] != "client|list"]


def test_the_handler_is_public():
    """For an app that handles every error by a table of its own."""
    response = PlainTextResponse("no", 429)
    error = RateLimitExceeded(response, {}, "Too Many Requests")
    assert asyncio.run(send_refusal(Request(scope()), error)) is response
