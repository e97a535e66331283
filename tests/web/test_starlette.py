"""Starlette: limits at endpoints of every kind, whatever is around them, and nothing charged for what is refused."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import pytest
from starlette.applications import Starlette
from starlette.authentication import AuthCredentials, AuthenticationBackend, SimpleUser, requires
from starlette.background import BackgroundTask
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route
from starlette.testclient import TestClient

from headgate import MemoryStore
from headgate.errors import HeadgateError, InvalidCall
from headgate.testing import ManualClock
from headgate.web.starlette import RateLimitExceeded, RateLimits, limited, send_refusal
from tests.support.awaiting import awaited
from tests.support.edges import LATER, get, scope, still

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


def test_a_decorator_between_two_limits_still_runs():
    """A decorator between them is not lost, and a request that both count is counted once by each."""

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


def login(limit: Callable[[Any], Any], gate: asyncio.Event) -> Starlette:
    """Every attempt fails, when the gate opens."""

    async def attempt(request: Request) -> Response:
        await gate.wait()
        return PlainTextResponse("wrong", 401 if request.headers.get("x-wrong") else 200)

    return Starlette(routes=[Route("/login", limit(attempt))])


@awaited
async def test_a_client_that_goes_away_has_not_failed():
    """A charge that was reserved for its answer is given back."""
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
    """Starlette's old kind, which runs the app in another task, changes nothing either; and it sees the refusals."""
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


# Websockets


def test_several_loops_and_clients_share_one_app():
    """A test client without a context runs each request in a loop of its own."""
    site = serve(Route("/x", limited("2/hour")(hello)))
    assert [TestClient(site.app).get("/x").status_code for _ in range(3)] == [200, 200, 429]
    for _ in range(2):
        with TestClient(site.app) as client:
            assert client.get("/x").status_code == 429


def test_the_handler_is_public():
    """For an app that handles every error by a table of its own."""
    response = PlainTextResponse("no", 429)
    error = RateLimitExceeded(response, {}, "Too Many Requests")
    assert asyncio.run(send_refusal(Request(scope()), error)) is response
