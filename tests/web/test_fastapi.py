"""FastAPI: limits as dependencies and decorators, routers at any depth, and what the OpenAPI document says of them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

import fastapi
import pytest
from fastapi import APIRouter, BackgroundTasks, Depends, FastAPI, Header, HTTPException
from fastapi import Request as AnyRequest
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel
from starlette.testclient import TestClient

from headgate.web.fastapi import RateLimitExceeded, RateLimits, limit, limited
from tests.web.test_starlette import EVERYONE, Site, names_in

pytestmark = pytest.mark.engineless

VERSION = tuple(int(part) for part in fastapi.__version__.split(".")[:2])


def site(app: FastAPI | None = None, **options: Any) -> Site[FastAPI]:
    """An app by a clock that stands still."""
    return Site(app or FastAPI(), RateLimits, **options)


def once() -> Any:
    """A dependency, made anew."""
    return Depends(limit("1/hour"))


class Item(BaseModel):
    """A body."""

    name: str
    price: float = 1.0


def test_a_dependency_limits_an_endpoint_of_either_kind():
    """It needs no parameter; the template is counted, never the URL."""
    at = site()

    @at.app.get("/sync/{n}", dependencies=[Depends(limit("2/hour"))])
    def sync(n: int) -> dict[str, int]:
        return {"thread": threading.get_ident()}

    @at.app.get("/async/{n}", dependencies=[Depends(limit("2/hour"))])
    async def asynchronous(n: int) -> int:
        return n

    answer = at.client.get("/sync/1")
    assert (answer.status_code, answer.headers["ratelimit"]) == (200, '"sync-n";r=1;t=1800')
    assert answer.json()["thread"] != threading.get_ident()
    assert at.codes("/sync/2", "/sync/3") == [200, 429]
    assert at.codes("/async/1", "/async/2", "/async/3") == [200, 200, 429]


def test_a_dependency_may_be_annotated_nested_or_a_parameter():
    """Wherever FastAPI finds it; the same object is asked once in a request."""
    at = site()
    shared = limit("2/hour")
    Shared = Annotated[None, Depends(shared)]

    def user(_: None = Depends(shared), x_user: str = Header("nobody")) -> str:
        return x_user

    async def endpoint(_, who, again):
        return who

    endpoint.__annotations__ = {"_": Shared, "who": Annotated[str, Depends(user)], "again": Shared}
    at.app.get("/x", dependencies=[Depends(shared)])(endpoint)
    user.__annotations__ = {"x_user": str}
    assert [at.client.get("/x", headers={"x-user": "ann"}).json() for _ in range(2)] == ["ann", "ann"]
    assert at.codes("/x") == [429]


def test_two_dependencies_are_two_counts_and_a_no_of_one_charges_none():
    """Two dependencies that look the same are two counts too, and so they are beside decorators and a policy."""
    at = site(policy=EVERYONE)
    key = {"header": "x-key"}

    @at.app.get("/x", dependencies=[Depends(limit("4/hour", key="everyone")), Depends(limit("1/hour", key=key))])
    @limited("4/hour", key="everyone")
    def endpoint() -> None: ...

    answer = at.client.get("/x", headers={"x-key": "ann"})
    assert answer.headers["ratelimit"] == '"all";r=4;t=720, "x";r=3;t=900, "x-2";r=0;t=3600, "x-3";r=3;t=900'
    assert at.codes("/x", times=9, x_key="ann") == [429] * 9
    assert at.client.get("/x", headers={"x-key": "bob"}).headers["ratelimit"].startswith('"all";r=3;')


def test_each_decision_at_an_endpoint_is_found_by_its_name_before_any_request():
    """Dependencies, then decorators, also below an included router and a mount: the names that requests count under."""
    at = site()
    router = APIRouter(prefix="/v1", dependencies=[Depends(limit("7/hour", key="everyone"))])

    @router.get("/x", dependencies=[Depends(limit("8/hour", key="everyone"))])
    @limited("9/hour", key="everyone")
    async def endpoint() -> None:
        pass

    below = FastAPI()
    below.get("/y")(limited("5/hour", key="everyone")(endpoint_of_its_own))
    at.app.include_router(router)
    at.app.mount("/sub", below)
    names = {"v1-x": 7, "v1-x-2": 8, "v1-x-3": 9, "sub-y": 5}
    assert {name: at.limits.peek(name).remaining for name in names} == names
    assert [at.client.get(path).status_code for path in ("/v1/x", "/sub/y")] == [200, 200]
    assert {name: at.limits.peek(name).remaining + 1 for name in names} == names
    assert at.limits.counts().keys() == names.keys()


def endpoint_of_its_own() -> None:
    """Below a mount."""


def test_one_limit_at_several_endpoints_is_a_count_for_each():
    """A variable may be used again and again."""
    at = site()
    shared = limit("1/hour")
    for path in ("/x", "/y"):
        at.app.get(path, dependencies=[Depends(shared)])(lambda: None)
    assert at.codes("/x", "/y", "/x", "/y") == [200, 200, 429, 429]


def test_dependencies_with_cleanup_are_cleaned_up():
    """Those that ran before the refusal."""
    at = site()
    story = []

    def resource() -> Iterator[str]:
        story.append("open")
        try:
            yield "it"
        finally:
            story.append("close")

    async def slow() -> AsyncIterator[str]:
        story.append("open")
        try:
            yield "it"
        finally:
            story.append("close")

    @at.app.get("/x", dependencies=[Depends(resource), Depends(slow), once()])
    def endpoint() -> None:
        story.append("endpoint")

    assert at.codes("/x", "/x") == [200, 429]
    assert story == ["open", "open", "endpoint", "close", "close", "open", "open", "close", "close"]


def test_what_fails_validation_counts_for_a_dependency_and_not_for_a_decorator():
    """Dependencies run first; a decorator runs when the endpoint would."""
    at = site()

    @at.app.get("/dependency", dependencies=[Depends(limit("2/hour"))])
    def dependency(n: int) -> int:
        return n

    @at.app.get("/decorator")
    @limited("2/hour")
    def decorator(n: int) -> int:
        return n

    answer = at.client.get("/dependency?n=x")
    assert (answer.status_code, answer.headers["ratelimit"]) == (422, '"dependency";r=1;t=1800')
    assert at.codes("/dependency?n=x", "/dependency?n=1") == [422, 429]
    assert at.codes("/decorator?n=x", times=3) == [422] * 3
    assert at.codes("/decorator?n=1", times=3) == [200, 200, 429]


@pytest.mark.skipif(VERSION < (0, 135), reason="endpoints that yield came with 0.134")
def test_an_endpoint_that_yields_is_limited_by_a_dependency():
    """Before it begins."""
    at = site()

    @at.app.get("/x", dependencies=[once()])
    async def stream():
        yield {"n": 1}
        yield {"n": 2}

    assert at.client.get("/x").text.replace(" ", "") == '{"n":1}\n{"n":2}\n'
    assert at.codes("/x") == [429]


# Every response


def test_every_response_tells_what_is_left():
    """Errors of the app, handled or not, of validation and of the router; streams and what is after them."""
    at = site(policy={"rules": [{"name": "all", "key": "ip", "limits": "99/hour"}]})
    ran: list[str] = []

    @at.app.get("/error", dependencies=[Depends(limit("9/hour"))])
    def error(kind: str) -> None:
        raise HTTPException(418, headers={"x-pot": "1"}) if kind == "http" else RuntimeError

    @at.app.get("/stream", dependencies=[Depends(limit("9/hour"))])
    def stream(tasks: BackgroundTasks) -> StreamingResponse:
        tasks.add_task(ran.append, "task")
        return StreamingResponse(bytes([at]) * at for at in range(100))

    for path, status in {"/error?kind=http": 418, "/error?kind=x": 500, "/error": 422, "/stream": 200}.items():
        answer = at.client.get(path)
        assert (answer.status_code, len(names_in(answer.headers["ratelimit"]))) == (status, 2)
    assert (answer.content, ran) == (b"".join(bytes([at]) * at for at in range(100)), ["task"])
    assert names_in(at.client.get("/nowhere").headers["ratelimit"]) == ['"all"']


def test_an_apps_own_handler_makes_the_refusal():
    """Of the fields that FastAPI's users know from HTTP exceptions."""
    at = site()

    @at.app.exception_handler(RateLimitExceeded)
    async def slow(request: AnyRequest, error: RateLimitExceeded) -> JSONResponse:
        return JSONResponse({"detail": error.detail}, error.status_code, headers=error.headers)

    @at.app.get("/x", dependencies=[once()])
    def endpoint() -> None: ...

    assert at.codes("/x") == [200]
    answer = at.client.get("/x")
    assert (answer.status_code, answer.json()) == (429, {"detail": "Too Many Requests"})
    assert answer.headers["retry-after"] == "3600"


@pytest.mark.parametrize("way", ["dependency", "decorator"])
def test_the_status_of_an_exception_counts(way):
    """An HTTP exception that the endpoint raises counts by its status, as a response does that it returns."""
    at, failures = site(), {"count": {"when": {"status": [401]}}}

    def login(password: str) -> str:
        if password != "right":
            raise HTTPException(401)
        return "welcome"

    login.__annotations__ = {"password": str, "return": str}
    if way == "dependency":
        at.app.get("/login", dependencies=[Depends(limit("2/hour", **failures))])(login)
    else:
        at.app.get("/login")(limited("2/hour", **failures)(login))
    assert at.codes("/login?password=right", times=5) == [200] * 5
    assert at.codes("/login?password=wrong", times=3) == [401, 401, 429]


def test_one_limit_is_switched_off_by_fastapis_own_means():
    """An override of a dependency replaces the limit, in the tests of an app."""
    at = site(policy={"rules": [{"key": "everyone", "limits": "9/hour"}]}, default="1/hour")
    strict = limit("1/hour")

    @at.app.get("/x", dependencies=[Depends(strict)])
    def endpoint() -> None: ...

    assert at.codes("/x", "/x") == [200, 429]
    at.app.dependency_overrides[strict] = lambda: None
    assert at.codes("/x", times=3) == [200, 200, 200]


def test_redis_is_awaited_and_a_lifespan_of_the_apps_closes_it(server):
    """Its own start and end run; the store closes after them."""
    story = []

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, str]]:
        story.append("start")
        yield {"from": "lifespan"}
        story.append("end")

    app = FastAPI(lifespan=lifespan)
    RateLimits(app, EVERYONE, default="2/hour", store=f"{server.url}?deadline=5")

    @app.get("/x")
    def endpoint(request: AnyRequest) -> str:
        return str(getattr(request.state, "from"))

    for codes in ([200, 200, 429], [429, 429, 429]):
        with TestClient(app) as client:
            assert [client.get("/x").status_code for _ in range(3)] == codes
    assert story == ["start", "end"] * 2
    assert not [each for each in server.client().client_list() if each["cmd"] != "client|list"]
