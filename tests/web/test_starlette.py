"""Starlette: limits at endpoints of every kind, whatever is around them, and nothing charged for what is refused."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
import time
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
from headgate.errors import HeadgateError, InvalidCall, InvalidPolicy
from headgate.testing import ManualClock, disabled, frozen, reset_all
from headgate.web.refusal import Refusal
from headgate.web.starlette import (
    Limit,
    RateLimitExceeded,
    RateLimitMiddleware,
    RateLimits,
    exempt,
    limited,
    send_refusal,
)
from tests.support.edges import LATER, PEER, exchange, get, scope
from tests.support.servers import free_port

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


def test_an_endpoint_tells_what_is_left_and_refuses_with_everything_a_client_needs():
    """The fields of a yes, and a whole refusal."""
    site = serve(Route("/search", limited("2/minute")(hello)))
    answer = site.client.get("/search")
    assert (answer.status_code, answer.text) == (200, "hello")
    assert (answer.headers["ratelimit-policy"], answer.headers["ratelimit"]) == (
        '"search";q=2;w=60',
        '"search";r=1;t=30',
    )
    assert site.codes("/search") == [200]
    answer = site.client.get("/search")
    assert (answer.status_code, answer.json()) == (429, {
        "type": "https://iana.org/assignments/http-problem-types#quota-exceeded", "title": "The quota is used up",
        "status": 429, "violated-policies": ["search"], "detail": "Retry after 30 s.",
    })  # fmt: skip
    assert dict(answer.headers) == {
        "ratelimit-policy": '"search";q=2;w=60', "ratelimit": '"search";r=0;t=60', "retry-after": "30",
        "cache-control": "no-store", "content-type": "application/problem+json",
        "content-length": str(len(answer.content)),
    }  # fmt: skip
    site.clock.advance(30)
    assert site.codes("/search", "/search") == [200, 429]


def test_an_endpoint_without_async_still_runs_in_a_thread():
    """It is asked in the event loop and runs beside it."""
    site = serve(Route("/x", limited("1/hour")(hello_in_a_thread)), Route("/loop", limited("1/hour")(hello)))
    answer = site.client.get("/x")
    assert answer.status_code == 200 and int(answer.text) != threading.get_ident()
    assert site.codes("/x") == [429]


def test_the_template_is_counted_never_the_url():
    """What a client writes into the path makes no budget."""
    site = serve(Route("/items/{id:int}/{rest:path}", limited("2/hour")(hello)))
    assert site.codes("/items/1/a", "/items/2/b", "/items/3/c/d") == [200, 200, 429]


def test_each_endpoint_has_counts_of_its_own():
    """One function at two paths is two endpoints, and so are two functions at one path."""
    once = limited("1/hour")(hello)

    @limited("1/hour")
    async def post(request: Request) -> Response:
        return PlainTextResponse("posted")

    site = serve(Route("/x", once), Route("/y", once), Route("/x", post, methods=["POST"]))
    assert site.codes("/x", "/y", "/x", "/y") == [200, 200, 429, 429]
    assert [site.client.post("/x").status_code for _ in range(2)] == [200, 429]


def test_limits_of_one_name_share_a_count():
    """Whatever their endpoints."""
    shared = limited("2/hour", name="shared")
    site = serve(Route("/x", shared(hello)), Route("/y", shared(hello)))
    assert site.codes("/x", "/y", "/x") == [200, 200, 429]


def test_the_apps_functions_take_the_request():
    """Key, cost, limits and exempt: with its headers, its path and its state."""
    site = serve(
        Route(
            "/{tenant}",
            limited(
                lambda request: "4/hour" if request.path_params["tenant"] == "acme" else "2/hour",
                key=[lambda request: request.headers.get("x-key"), lambda request: request.path_params["tenant"]],
                cost=lambda request: int(request.query_params.get("n", 1)),
                exempt=lambda request: request.headers.get("x-key") == "root",
            )(hello),
        )
    )
    assert site.codes("/acme", times=5, x_key="ann") == [200, 200, 200, 200, 429]
    assert site.codes("/acme?n=4", "/acme", x_key="bob") == [200, 429]
    assert site.codes("/tiny", times=3, x_key="ann") == [200, 200, 429]
    assert site.codes("/tiny", times=9, x_key="root") == [200] * 9


def test_a_key_that_is_missing_is_the_address_and_nobody_elses():
    """Who sends no key is not who sends the address as one."""
    site = serve(Route("/x", limited("1/hour", key=lambda request: request.headers.get("x-key"))(hello)))
    assert site.codes("/x", "/x") == [200, 429]
    assert site.codes("/x", x_key="testclient") == [200]


# Several limits


def test_stacked_limits_are_one_decision():
    """A no of one charges none of the others; the response tells of all."""
    site = serve(
        Route("/x", limited("1/hour", key={"header": "x-key"})(limited("5/hour", key="everyone")(hello))),
    )
    answer = site.client.get("/x", headers={"x-key": "ann"})
    assert answer.headers["ratelimit"] == '"x";r=0;t=3600, "x.2";r=4;t=720'
    assert site.codes("/x", times=9, x_key="ann") == [429] * 9
    assert [site.codes("/x", x_key=each) for each in "bcdef"] == [[200], [200], [200], [200], [429]]


def test_a_no_at_the_endpoint_gives_back_what_the_policy_charged():
    """Nine refusals at the endpoint cost nobody anything."""
    site = serve(Route("/x", limited("1/hour", key={"header": "x-key"})(hello)), Route("/y", hello), policy=EVERYONE)
    answer = site.client.get("/x", headers={"x-key": "ann"})
    assert answer.headers["ratelimit-policy"] == '"all";q=5;w=3600, "x";q=1;w=3600'
    assert site.codes("/x", times=9, x_key="ann") == [429] * 9
    assert site.client.get("/y").headers["ratelimit"] == '"all";r=3;t=1440'


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


def test_ten_failing_logins_at_once_are_two_attempts():
    """The count is reserved before the app is called, and given back where it does not count."""

    async def story() -> None:
        gate = asyncio.Event()
        app = login(limited("2/hour", count={"when": {"status": [401]}}), gate)
        RateLimits(app, store=MemoryStore(clock=ManualClock(LATER)))
        wrong = [asyncio.create_task(get(app, "GET", "/login", headers={"x-wrong": "1"})) for _ in range(10)]
        await asyncio.sleep(0)
        await asyncio.sleep(0.01)
        gate.set()
        assert sorted([answer.status for answer in await asyncio.gather(*wrong)]) == [401] * 2 + [429] * 8
        assert (await get(app, "GET", "/login")).status == 429

    asyncio.run(story())


def test_what_does_not_count_is_given_back():
    """Nine successes, then two failures, then nothing more."""

    async def story() -> None:
        gate = asyncio.Event()
        gate.set()
        app = login(limited("2/hour", count={"when": {"status": [401]}}), gate)
        RateLimits(app, store=MemoryStore(clock=ManualClock(LATER)))
        assert [(await get(app, "GET", "/login")).status for _ in range(9)] == [200] * 9
        wrong = {"x-wrong": "1"}
        assert [(await get(app, "GET", "/login", headers=wrong)).status for _ in range(3)] == [401, 401, 429]

    asyncio.run(story())


def test_a_client_that_goes_away_has_not_failed():
    """What was reserved for its answer is given back."""

    async def story() -> None:
        gate = asyncio.Event()
        app = login(limited("1/hour", count={"when": {"status": [401]}}), gate)
        RateLimits(app, store=MemoryStore(clock=ManualClock(LATER)))
        gone = asyncio.create_task(get(app, "GET", "/login", headers={"x-wrong": "1"}))
        await asyncio.sleep(0.01)
        assert (await get(app, "GET", "/login")).status == 429
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
        gate.set()
        assert [(await get(app, "GET", "/login", headers={"x-wrong": "1"})).status for _ in range(2)] == [401, 429]

    asyncio.run(story())


def test_the_response_says_what_it_cost():
    """By a header, of a response of any status; an error without one costs what was charged before."""

    async def spend(request: Request) -> Response:
        if request.query_params["n"] == "x":
            raise RuntimeError
        return PlainTextResponse("", headers={"x-cost": request.query_params["n"]})

    site = serve(Route("/x", limited("10/hour", cost={"after": {"header": "X-Cost"}})(spend)))
    assert site.codes("/x?n=4", "/x?n=0", "/x?n=x") == [200, 200, 500]
    assert site.client.get("/x?n=5").headers["ratelimit"] == '"x";r=0;t=3600'
    assert site.codes("/x?n=1") == [429]


# Every response


def boom(request: Request) -> Response:
    raise RuntimeError("boom")


async def teapot(request: Request) -> Response:
    raise HTTPException(418, "short and stout", {"x-pot": "1"})


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/boom", 500),
        ("GET", "/teapot", 418),
        ("GET", "/nowhere", 404),
        ("PUT", "/teapot", 405),
        ("HEAD", "/hello", 200),
    ],
)
def test_every_response_tells_what_is_left(method, path, status):
    """Errors of the app, handled or not, and of the router."""
    routes = [Route(f"/{each.__name__}", limited("9/hour")(each)) for each in (boom, teapot, hello)]
    site = serve(*routes, policy=EVERYONE)
    answer = site.client.request(method, path)
    assert answer.status_code == status
    reached = status not in (404, 405)
    assert names_in(answer.headers["ratelimit"]) == (['"all"', f'"{path[1:]}"'] if reached else ['"all"'])
    assert ("x-pot" in answer.headers) is (status == 418)


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
    assert "RateLimit" in answers[0].headers["access-control-expose-headers"]


# What a no looks like


def own(request: Request, error: Exception) -> Response:
    assert isinstance(error, RateLimitExceeded)
    return JSONResponse({"slow": "down"}, error.status_code, headers=error.headers)


def with_handler_before() -> Site[Starlette]:
    routes = [Route("/x", limited("1/hour")(hello))]
    return Site(Starlette(routes=routes, exception_handlers={RateLimitExceeded: own}))


def with_handler_after() -> Site[Starlette]:
    site = serve(Route("/x", limited("1/hour")(hello)))
    site.app.add_exception_handler(RateLimitExceeded, own)
    return site


def with_handler_of_429() -> Site[Starlette]:
    return Site(Starlette(routes=[Route("/x", limited("1/hour")(hello))], exception_handlers={429: own}))


@pytest.mark.parametrize("make", [with_handler_before, with_handler_after, with_handler_of_429])
def test_the_apps_own_handler_comes_first(make):
    """Wherever it was installed; the fields are the exception's headers."""
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


def test_the_body_may_be_the_apps():
    """Made of the reason and the seconds, at the endpoint as in front of the app."""
    refusal = Refusal(lambda reason, decision, seconds: {"code": reason.status, "wait": seconds})
    policy = {"rules": [{"match": {"path": "/y"}, "key": "ip", "limits": "1/hour"}]}
    site = serve(Route("/x", limited("1/hour")(hello)), Route("/y", hello), policy=policy, refusal=refusal)
    assert site.codes("/x", "/y") == [200, 200]
    assert [site.client.get(path).json() for path in ("/x", "/y")] == [{"code": 429, "wait": 3600}] * 2


def test_clients_choose_among_bodies():
    """By what they accept."""
    site = serve(Route("/x", limited("1/hour")(hello)))
    assert site.codes("/x") == [200]
    text = site.client.get("/x", headers={"accept": "text/plain"})
    assert text.text == "The quota is used up. Retry after 3600 s.\n"
    assert site.client.get("/x", headers={"accept": "application/json"}).json()["retry_after"] == 3600


def test_acts():
    """Observed is admitted; a shadow answers as if; a delay holds until the place in the queue has come."""
    shadow = {"shadow": {"status": 202, "body": "ok", "content_type": "text/x-ok"}}
    site = serve(
        Route("/observe", limited("1/hour", act="observe")(hello)),
        Route("/shadow", limited("1/hour", act=shadow)(hello)),
        Route("/delay", limited("20/second", act={"delay": {"hold": 2}})(hello)),
    )
    assert site.codes("/observe", times=3) == [200, 200, 200]
    assert site.codes("/shadow") == [200]
    answer = site.client.get("/shadow")
    assert (answer.status_code, answer.text, dict(answer.headers)) == (
        202,
        "ok",
        {"content-type": "text/x-ok", "content-length": "2"},
    )
    start = time.monotonic()
    assert site.codes("/delay", times=3) == [200, 200, 429]
    assert time.monotonic() - start >= 0.05


def test_a_missing_part_is_refused_with_401_where_the_limit_says_so():
    """Nobody's limit, so nothing to wait for."""
    site = serve(Route("/x", limited("1/hour", key={"header": "x-key"}, missing="deny")(hello)))
    answer = site.client.get("/x")
    assert (answer.status_code, answer.json()["title"]) == (401, "Unauthorized")
    assert "retry-after" not in answer.headers


# The middleware alone


def test_the_middleware_alone_is_enough_for_endpoints():
    """Added where the app's other middleware is; the refusal is as whole."""
    store = MemoryStore(clock=ManualClock(LATER))
    shadow = {"shadow": {"status": 299, "body": "ok"}}
    app = Starlette(
        routes=[Route("/x", limited("1/hour")(hello)), Route("/s", limited("1/hour", act=shadow)(hello))],
        middleware=[Middleware(RateLimitMiddleware, policy=EVERYONE, store=store)],
    )
    client = TestClient(app)
    assert client.get("/x").headers["ratelimit-policy"] == '"all";q=5;w=3600, "x";q=1;w=3600'
    answer = client.get("/x")
    assert (answer.status_code, answer.headers["content-type"]) == (429, "application/problem+json")
    assert [(client.get("/s").status_code, client.get("/s").text)] == [(200, "ok")]


def test_without_either_an_endpoint_says_what_is_missing():
    """No limit is ever left out silently."""
    app = Starlette(routes=[Route("/x", limited("1/hour")(hello))])
    with pytest.raises(HeadgateError, match=r"limits at endpoints need RateLimits\(app\)"):
        TestClient(app).get("/x")


def test_an_app_that_runs_already_is_told_so():
    """Its middleware cannot be changed any more."""
    app = Starlette(routes=[Route("/x", hello)])
    TestClient(app).get("/x")
    with pytest.raises(InvalidCall, match="where the app is made"):
        RateLimits(app)


# Default limits


def test_default_limits_are_for_endpoints_without_their_own():
    """Per endpoint; who is exempt, or has limits, is left alone."""

    async def post(request: Request) -> Response:
        return PlainTextResponse("posted")

    async def free(request: Request) -> Response:
        return PlainTextResponse("free")

    site = serve(
        Route("/x", hello),
        Route("/x", post, methods=["POST"]),
        Route("/own", limited("3/hour")(hello)),
        Route("/partial", functools.partial(limited("3/hour")(hello))),
        Route("/free", exempt(free)),
        Route("/free/partial", functools.partial(free)),
        Route("/free/limited", limited("3/hour")(free)),
        default="1/hour",
    )
    assert site.codes("/x", "/x") == [200, 429]
    assert [site.client.post("/x").status_code for _ in range(2)] == [200, 429]
    for path in ("/own", "/partial", "/free/limited"):
        assert site.codes(path, times=4) == [200, 200, 200, 429]
    assert site.codes("/free", "/free/partial", times=9) == [200] * 18
    assert site.codes("/nowhere", times=3) == [404] * 3
    assert [site.client.put("/x").status_code for _ in range(3)] == [405] * 3


def test_default_limits_by_another_key():
    """Any key of a policy."""
    site = serve(Route("/x", hello), default="1/hour", key={"header": "x-key"})
    assert [site.codes("/x", x_key=each) for each in "aab"] == [[200], [429], [200]]


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
    with frozen(inner.limits.runtime):
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

    with pytest.raises(InvalidCall, match="use Depends"):
        limited("1/hour")(stream)
    with pytest.raises(InvalidCall, match="endpoint classes"):
        limited("1/hour")(App)
    for wrong in ({"limits": "many"}, {"limits": "1/hour", "key": "who"}, {"limits": "1/hour", "weight": 3}):
        with pytest.raises(InvalidPolicy):
            limited(**wrong)


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


# Who the client is


def test_a_forwarded_header_is_believed_from_trusted_proxies_only():
    """At endpoints as in front of the app."""

    async def story() -> None:
        routes = [Route("/x", limited("1/hour")(hello))]
        for trusted, peer, expected in (
            ([], PEER, [200, 429, 429]),
            (["10.0.0.0/8"], PEER, [200, 429, 429]),
            (["10.0.0.0/8"], "10.0.0.1", [200, 200, 429]),
        ):
            app = Starlette(routes=routes)
            RateLimits(app, store=MemoryStore(clock=ManualClock(LATER)), trusted_proxies=trusted)
            told = ("6.6.6.6, 198.51.100.1", "6.6.6.6, 198.51.100.2", "7.7.7.7, 198.51.100.1")
            answers = [
                await get(app, "GET", "/x", headers={"x-forwarded-for": each}, client=(peer, 1)) for each in told
            ]
            assert [answer.status for answer in answers] == expected

    asyncio.run(story())


def test_users_plans_and_claims():
    """From the functions that the edge is given; they take the scope."""
    site = serve(
        Route("/x", limited({"default": "1/hour", "pro": "2/hour"}, key="user")(hello)),
        user=lambda scope: dict(scope["headers"]).get(b"x-user", b"").decode() or None,
        plan=lambda view: "pro" if view.user == "ann" else "free",
    )
    assert site.codes("/x", times=3, x_user="ann") == [200, 200, 429]
    assert site.codes("/x", times=2, x_user="bob") == [200, 429]


# Tests of the app's own


def test_limits_are_frozen_forgotten_and_switched_off_by_one_line():
    """By the runtime; the policy, the default limits and those of endpoints at once."""
    site = serve(Route("/x", limited("1/hour")(hello)), Route("/y", hello), policy=EVERYONE, default="1/hour")
    assert site.codes("/x", "/y", times=2) == [200, 200, 429, 429]
    with disabled(site.limits.runtime):
        assert site.codes("/x", "/y", times=9) == [200] * 18
    assert site.codes("/x", "/y") == [429, 429]
    with frozen(site.limits.runtime) as clock:
        assert site.codes("/x", "/x") == [200, 429]
        clock.advance(3600)
        assert site.codes("/x") == [200]
    assert site.codes("/x", "/y") == [429, 429]
    reset_all(site.limits.runtime)
    assert site.codes("/x", "/y") == [200, 200]


def test_several_loops_and_clients_share_one_app():
    """A test client without a context runs each request in a loop of its own."""
    site = serve(Route("/x", limited("2/hour")(hello)))
    assert [TestClient(site.app).get("/x").status_code for _ in range(3)] == [200, 200, 429]
    for _ in range(2):
        with TestClient(site.app) as client:
            assert client.get("/x").status_code == 429


# Stores


@pytest.mark.parametrize(
    ("on_error", "expected"),
    [("allow", [200, 200, 200]), ("local", [200, 429, 429]), ("deny", [503] * 3), ("raise", [503] * 3)],
)
def test_while_the_store_is_away_each_limit_follows_its_on_error(on_error, expected):
    """A server that is not there answers nobody; nobody waits for it."""
    url = f"redis://127.0.0.1:{free_port()}?deadline=0.2"
    site = serve(Route("/x", limited("1/hour", on_error=on_error)(hello)), store=url)
    with site.client:
        assert site.codes("/x", times=3) == expected


def test_redis_is_awaited_in_the_event_loop(server):
    """The count is exact; the store closes with the app, and the app may start again."""
    app = Starlette(routes=[Route("/x", limited("5/hour")(hello_in_a_thread))])
    limits = RateLimits(app, store=f"{server.url}?deadline=5")

    async def story() -> list[int]:
        answers = await asyncio.gather(*(get(app, "GET", "/x") for _ in range(20)))
        await limits.runtime.aclose()
        return sorted(answer.status for answer in answers)

    assert asyncio.run(story()) == [200] * 5 + [429] * 15
    for left in ("4", "3"):
        with TestClient(app) as client:
            assert client.get("/x").headers["ratelimit"].startswith(f'"x";r={left};')
    assert not [each for each in server.client().client_list() if each["cmd"] != "client|list"]


def test_counts_after_the_response_and_all_or_none_hold_on_redis_too(server):
    """Given back on the server."""
    gate = asyncio.Event()

    async def story() -> None:
        app = login(
            lambda endpoint: limited("2/hour", count={"when": {"status": [401]}})(
                limited("5/hour", key="everyone")(endpoint)
            ),
            gate,
        )
        limits = RateLimits(app, EVERYONE, store=f"{server.url}?deadline=5&remember_refusals=0")
        wrong = {"x-wrong": "1"}
        tasks = [asyncio.create_task(get(app, "GET", "/login", headers=wrong)) for _ in range(10)]
        async with asyncio.timeout(30):
            while sum(task.done() for task in tasks) < 8:
                await asyncio.sleep(0.01)
        gate.set()
        assert sorted([answer.status for answer in await asyncio.gather(*tasks)]) == [401] * 2 + [429] * 8
        other = await get(app, "GET", "/login", client=("198.51.100.1", 1))
        assert [part.split(";t")[0] for part in other.fields["ratelimit"].split(", ")] == [
            '"all";r=2', '"login";r=2', '"login.2";r=2',
        ]  # fmt: skip
        await limits.runtime.aclose()

    asyncio.run(story())


def test_a_policy_file_is_read_again_and_endpoints_go_on(tmp_path):
    """The style of the fields is the new policy's; counts stay."""
    file = tmp_path / "policy.yaml"
    file.write_text("rules: [{name: one, key: ip, limits: 9/hour}]\n")
    site = serve(Route("/x", limited("3/hour")(hello)), policy=file)
    assert names_in(site.client.get("/x").headers["ratelimit"]) == ['"one"', '"x"']
    file.write_text("headers: x-ratelimit\nrules: [{name: two, key: ip, limits: 9/hour}]\n")
    assert site.limits.runtime.reload()
    answer = site.client.get("/x")
    assert "ratelimit" not in answer.headers and answer.headers["x-ratelimit-remaining"] == "1"
    assert site.codes("/x", "/x") == [200, 429]


def test_the_handler_is_public():
    """For an app that handles every error by a table of its own."""
    response = PlainTextResponse("no", 429)
    error = RateLimitExceeded(response, {}, "Too Many Requests")
    assert asyncio.run(send_refusal(Request(scope()), error)) is response
