"""FastAPI: limits as dependencies and decorators, routers at any depth, and what the OpenAPI document says of them."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import fastapi
import pytest
from fastapi import APIRouter, BackgroundTasks, Depends, FastAPI, Header, HTTPException, Query, WebSocket
from fastapi import Request as AnyRequest
from fastapi import Response as AnyResponse
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse
from pydantic import BaseModel
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from headgate.web.fastapi import RateLimitExceeded, RateLimits, exempt, limit, limited
from tests.support.awaiting import awaited
from tests.support.edges import get, read_answer, scope, still
from tests.web.test_starlette import EVERYONE, Site, names_in

pytestmark = pytest.mark.engineless

if TYPE_CHECKING:
    from nowhere import Unknown  # type: ignore[import-not-found]

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


# Dependencies


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
    """Also of two that look the same, and together with decorators and a policy."""
    at = site(policy=EVERYONE)
    key = {"header": "x-key"}

    @at.app.get("/x", dependencies=[Depends(limit("4/hour", key="everyone")), Depends(limit("1/hour", key=key))])
    @limited("4/hour", key="everyone")
    def endpoint() -> None: ...

    answer = at.client.get("/x", headers={"x-key": "ann"})
    assert answer.headers["ratelimit"] == '"all";r=4;t=720, "x";r=3;t=900, "x-2";r=0;t=3600, "x-3";r=3;t=900'
    assert at.codes("/x", times=9, x_key="ann") == [429] * 9
    assert at.client.get("/x", headers={"x-key": "bob"}).headers["ratelimit"].startswith('"all";r=3;')


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


# Decorators


@limited("1/hour")
async def plain(q: int) -> int:
    return q


@limited("1/hour")
def in_a_thread(q: int = 3) -> int:
    assert threading.current_thread() is not threading.main_thread()
    return q


@limited("1/hour")
async def other_name(r: AnyRequest, q: int) -> int:
    assert r.url.path == "/x"
    return q


@limited("1/hour")
async def keyword_only(*, q: int) -> int:
    return q


@limited("1/hour")
async def annotated(q: Annotated[int, Query(ge=0)], user_agent: Annotated[str, Header()] = "") -> int:
    assert user_agent == "testclient"
    return q


@limited("1/hour")
async def with_everything(
    q: int, request: AnyRequest, response: AnyResponse, tasks: BackgroundTasks, agent: str = Header("")
) -> int:
    response.headers["x-response"] = "1"
    tasks.add_task(request.app.state.ran.append, q)
    return q


@limited("1/hour")
async def stacked_outside(q: int) -> int:
    return q


@limited("1/hour")
async def unknown_here(item: Annotated[int, Query(alias="q")]) -> Unknown:
    return item


@limited("1/hour")
async def returns_a_response(q: int) -> JSONResponse:
    return JSONResponse(q)


@limited("1/hour")
async def returns_a_model(q: int) -> Item:
    return Item(name="it", price=q)


class Methods:
    @limited("1/hour")
    async def method(self, q: int) -> int:
        return q

    async def __call__(self, q: int) -> int:
        return q


class InAThread:
    def __call__(self, q: int) -> int:
        assert threading.current_thread() is not threading.main_thread()
        return q


async def two(factor: int, q: Annotated[int, Query()]) -> int:
    return factor * q


ENDPOINTS: dict[str, Any] = {
    "function": plain,
    "in a thread": in_a_thread,
    "request by another name": other_name,
    "keyword only": keyword_only,
    "annotated": annotated,
    "returns a response": returns_a_response,
    "returns what only the type checker knows": unknown_here,
    "method": Methods().method,
    "object": limited("1/hour")(Methods()),
    "object in a thread": limited("1/hour")(InAThread()),
    "partial": limited("1/hour")(functools.partial(two, factor=1)),
    "partial around": functools.partial(limited("1/hour")(two), factor=1),
}


@pytest.mark.parametrize("kind", ENDPOINTS)
def test_a_decorated_endpoint_is_called_as_it_was(kind):
    """Whatever it asks for, and by whatever name; types may be written as strings."""
    at = site()
    at.app.get("/x", response_model=None)(ENDPOINTS[kind])
    answer = at.client.get("/x?q=3")
    assert (answer.status_code, answer.json()) == (200, 3), answer.text
    assert answer.headers["ratelimit"] == '"x";r=0;t=3600'
    assert at.codes("/x?q=3") == [429]
    assert "headgate" not in str(at.app.openapi())


def test_a_decorated_endpoint_may_ask_for_everything():
    """Response and background tasks work as they do."""
    at = site()
    at.app.state.ran = []
    at.app.get("/x")(with_everything)
    answer = at.client.get("/x?q=3")
    assert (answer.json(), answer.headers["x-response"], at.app.state.ran) == (3, "1", [3])
    assert at.codes("/x?q=3") == [429] and at.app.state.ran == [3]


@limited("1/hour")
async def body_called_request(request: Item) -> str:
    return request.name


@limited("1/hour")
async def takes_any(request: Item, **kwargs: Any) -> str:
    return request.name


def test_a_body_may_be_called_request():
    """It is not taken for one."""
    at = site()
    at.app.post("/x")(body_called_request)
    assert [at.client.post("/x", json={"name": "it"}).status_code for _ in range(2)] == [200, 429]
    at.app.post("/y")(takes_any)
    assert at.client.post("/y?kwargs=1", json={"name": "it"}).json() == "it"


def test_a_model_that_is_returned_is_the_responses():
    """Its type is read through the decorator, and documented."""
    at = site()
    at.app.get("/x")(returns_a_model)
    assert at.client.get("/x?q=3").json() == {"name": "it", "price": 3.0}
    ok = at.app.openapi()["paths"]["/x"]["get"]["responses"]["200"]
    assert ok["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/Item"}


def test_stacked_decorators_are_one_decision():
    """One name for each."""
    at = site()
    at.app.get("/x")(limited("5/day", key="everyone")(stacked_outside))
    assert at.client.get("/x?q=1").headers["ratelimit"] == '"x";r=4;t=17280, "x.2";r=0;t=3600'


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


# Routers


def make_router(**options: Any) -> APIRouter:
    router = APIRouter(**options)

    @router.get("/{name}", dependencies=[once()])
    def dependency(name: str) -> str:
        return name

    @router.get("/decorated/{name}")
    @limited("1/hour")
    def decorator(name: str) -> str:
        return name

    return router


def test_a_router_included_twice_has_two_counts():
    """Under two prefixes, at any depth; a parameter in the prefix makes no budget."""
    at = site()
    router, outer = make_router(), APIRouter(prefix="/outer")
    outer.include_router(router, prefix="/deep")
    at.app.include_router(router, prefix="/a")
    at.app.include_router(router, prefix="/b")
    at.app.include_router(outer)
    at.app.include_router(outer, prefix="/{tenant}")
    for tail in ("", "decorated/"):
        for prefix in ("/a/", "/b/", "/outer/deep/"):
            assert at.codes(f"{prefix}{tail}1", f"{prefix}{tail}2") == [200, 429]
        assert at.codes(f"/acme/outer/deep/{tail}1", f"/other/outer/deep/{tail}2") == [200, 429]
    assert at.client.get("/acme/outer/deep/1").json()["violated-policies"] == ["tenant-outer-deep-name"]


def test_a_routers_limit_is_for_each_of_its_endpoints():
    """Together with theirs; where it was given does not matter."""
    at = site()
    own = APIRouter(dependencies=[Depends(limit("2/hour"))])

    @own.get("/x")
    @own.get("/y")
    def endpoint() -> None: ...

    @own.get("/z", dependencies=[once()])
    def stricter() -> None: ...

    at.app.include_router(own, prefix="/own")
    at.app.include_router(make_router(), prefix="/given", dependencies=[Depends(limit("9/hour"))])
    assert at.codes("/own/x", times=3) == [200, 200, 429]
    assert at.codes("/own/y", times=3) == [200, 200, 429]
    assert names_in(at.client.get("/own/z").headers["ratelimit"]) == ['"own-z"', '"own-z-2"']
    assert at.codes("/own/z") == [429]
    assert names_in(at.client.get("/given/1").headers["ratelimit"]) == ['"given-name"', '"given-name-2"']


def test_where_a_router_brings_limits_the_default_ones_stay_away_and_only_there():
    """The same router, included with a limit and without."""
    at, router = site(default="1/hour"), APIRouter()
    router.get("/x")(lambda: None)
    at.app.include_router(router, prefix="/own", dependencies=[Depends(limit("2/hour"))])
    at.app.include_router(router, prefix="/default")
    assert at.codes("/own/x", times=3) == [200, 200, 429]
    assert at.codes("/default/x", times=2) == [200, 429]


def test_exempt_endpoints_are_left_alone_by_limits_that_are_not_their_own():
    """By the router's and by the default ones, as the document says; their own decorators stay, on either side."""
    at = site(default="1/hour")
    router = APIRouter(dependencies=[once()])

    @router.get("/free")
    @exempt
    def free() -> None: ...

    @router.get("/inside")
    @limited("2/hour")
    @exempt
    def inside() -> None: ...

    @router.get("/outside")
    @exempt
    @limited("2/hour")
    def outside() -> None: ...

    at.app.include_router(router)
    at.app.get("/default")(lambda: None)
    assert at.codes("/free", times=5) == [200] * 5
    assert at.codes("/inside", times=3) == at.codes("/outside", times=3) == [200, 200, 429]
    paths = at.app.openapi()["paths"]
    told = {path for path in paths if "429" in paths[path]["get"]["responses"]}
    assert told == {"/inside", "/outside", "/default"}


# Default limits


@pytest.mark.parametrize("late", [False, True])
def test_default_limits_are_for_every_endpoint_without_its_own(late):
    """Before and after they are made, in routers and in mounted apps, and each on its own."""
    app, store = FastAPI(), still()
    if not late:
        RateLimits(app, default="1/hour", store=store)
    router, sub = make_router(), FastAPI()

    @app.get("/x")
    def endpoint() -> None: ...

    @app.post("/x")
    def other() -> None: ...

    @router.get("/plain/{name}")
    @sub.get("/plain/{name}")
    def covered(name: str) -> None: ...

    @app.get("/own", dependencies=[Depends(limit("2/hour"))])
    def own() -> None: ...

    app.include_router(router, prefix="/r")
    app.include_router(router, prefix="/s")
    app.mount("/sub", sub)
    app.add_route("/starlette", lambda request: PlainTextResponse("it"))
    if late:
        RateLimits(app, default="1/hour", store=store)
    at = TestClient(app)

    def codes(*paths: str) -> list[int]:
        return [at.get(path).status_code for path in paths]

    assert codes("/x", "/x") == [200, 429]
    assert [at.post("/x").status_code for _ in range(2)] == [200, 429]
    assert codes("/r/plain/1", "/r/plain/2", "/s/plain/1", "/s/plain/2") == [200, 429] * 2
    assert codes("/sub/plain/1", "/sub/plain/2", "/starlette", "/starlette") == [200, 429] * 2
    assert codes("/own", "/own", "/own") == [200, 200, 429]
    assert at.get("/r/1").headers["ratelimit"] == '"r-name";r=0;t=3600'
    assert at.get("/sub/plain/3").headers["content-type"] == "application/problem+json"


@awaited
async def test_default_limits_are_asked_before_the_body_is_read():
    """A refused upload is not waited for."""
    app = FastAPI()
    RateLimits(app, default="1/hour", store=still())

    @app.post("/x")
    def endpoint(item: Item) -> None: ...

    sent: list[Any] = []

    async def never() -> Any:
        raise AssertionError("the body was read")

    async def send(message: Any) -> None:
        sent.append(message)

    assert (await get(app, "POST", "/x")).status == 422
    await app(scope("POST", "/x"), never, send)
    assert read_answer(sent).status == 429


def test_routes_added_while_the_app_starts_are_covered():
    """Also to a router that was included before."""
    router = APIRouter()

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        router.add_api_route("/late", lambda: None)
        app.include_router(router, prefix="/r")
        app.add_api_route("/late", lambda: None)
        yield

    at = site(FastAPI(lifespan=lifespan), default="1/hour")
    with at.client:
        assert at.codes("/late", "/late", "/r/late", "/r/late") == [200, 429, 200, 429]


# What the OpenAPI document says


def test_the_document_tells_of_429_and_its_fields_wherever_a_limit_may_refuse():
    """At endpoints, in routers at any depth, by a policy; and nowhere else."""
    policy = {"headers": ["draft-11", "x-ratelimit"], "rules": [
        {"match": {"path": "/api/**", "method": "GET"}, "key": "ip", "limits": "9/hour"},
    ]}  # fmt: skip
    at = site(policy=policy)
    outer, inner = APIRouter(prefix="/outer", dependencies=[once()]), APIRouter(prefix="/{tenant}")

    @inner.get("/x")
    @at.app.get("/free")
    @at.app.get("/api/{id}")
    @at.app.post("/api/{id}")
    def endpoint() -> None: ...

    @at.app.get("/decorated", responses={429: {"description": "Slow down", "model": Item}})
    @limited("1/hour")
    def decorated() -> None: ...

    @inner.get("/hidden", include_in_schema=False)
    def hidden() -> None: ...

    @at.app.get("/messages", dependencies=[Depends(limit("1/hour", messages=True))])
    def not_for_messages() -> None: ...

    outer.include_router(inner)
    at.app.include_router(outer)
    document = at.client.get("/openapi.json").json()
    told = {
        (path, method): operation["responses"]["429"]
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
        if "429" in operation["responses"]
    }
    assert set(told) == {("/outer/{tenant}/x", "get"), ("/api/{id}", "get"), ("/decorated", "get")}
    answer = told["/api/{id}", "get"]
    assert answer["description"] == "Too Many Requests"
    assert answer["content"] == {"application/problem+json": {"schema": {"type": "object"}}}
    assert answer["headers"] == {
        **{f"X-RateLimit-{part}": {"schema": {"type": "string"}} for part in ("Limit", "Remaining", "Reset")},
        "RateLimit-Policy": {"schema": {"type": "string"}}, "RateLimit": {"schema": {"type": "string"}},
        "Retry-After": {"schema": {"type": "integer"}},
    }  # fmt: skip
    mine = told["/decorated", "get"]
    assert mine["description"] == "Slow down" and mine["headers"] == answer["headers"]
    assert mine["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/Item"}
    del at.app.openapi()["paths"]["/decorated"]["get"]["responses"]["429"]
    assert "429" not in at.app.openapi()["paths"]["/decorated"]["get"]["responses"], "it is made once"


def test_a_document_of_the_apps_own_is_kept():
    """What it makes is what is told of."""
    app = FastAPI()
    made = {"openapi": "3.1.0", "paths": {"/x": {"get": {}}, "/y": {"get": {"responses": {}}}}}
    app.openapi = lambda: made  # type: ignore[method-assign]
    at = site(app, default="1/hour")

    @at.app.get("/x")
    def endpoint() -> None: ...

    document = at.app.openapi()
    assert document is made
    assert set(document["paths"]["/x"]["get"]["responses"]) == {"429"}
    assert document["paths"]["/y"]["get"] == {"responses": {}}


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


# Websockets


async def echo(websocket: WebSocket) -> None:
    await websocket.accept()
    with contextlib.suppress(WebSocketDisconnect):
        while True:
            await websocket.send_text(await websocket.receive_text())


async def echo_by_another_name(ws: WebSocket, room: str = "") -> None:
    await echo(ws)


@pytest.mark.parametrize("way", ["dependency", "decorator", "default", "router"])
def test_a_websocket_too_many_is_refused(way):
    """However it is limited; a router included twice has two counts."""
    at = site(default="1/hour" if way == "default" else None)
    router = APIRouter(dependencies=[once()] if way == "router" else [])
    endpoint = limited("1/hour")(echo_by_another_name) if way == "decorator" else echo_by_another_name
    router.websocket("/ws/{room}", dependencies=[once()] if way == "dependency" else [])(endpoint)
    at.app.include_router(router, prefix="/a")
    at.app.include_router(router, prefix="/b")
    for prefix in ("/a", "/b"):
        with at.client.websocket_connect(f"{prefix}/ws/1") as websocket:
            websocket.send_text("hi")
            assert websocket.receive_text() == "hi"
        with pytest.raises(WebSocketDisconnect) as refused, at.client.websocket_connect(f"{prefix}/ws/2"):
            pass
        answer: Any = refused.value
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "3600")
        assert answer.json()["violated-policies"] == [f"{prefix[1:]}-ws-room"]


def test_own_limits_of_a_websocket_replace_the_default_ones():
    """Also in a router."""
    at, router = site(default="1/hour"), APIRouter()
    router.websocket("/ws", dependencies=[Depends(limit("2/hour"))])(echo)
    at.app.include_router(router, prefix="/r")
    for _ in range(2):
        with at.client.websocket_connect("/r/ws"):
            pass
    with pytest.raises(WebSocketDisconnect), at.client.websocket_connect("/r/ws"):
        pass


def test_each_message_of_a_websocket_counts():
    """By what the key says; connections have a count of their own, and so has each limit."""
    at = site()
    per_key = {"key": lambda websocket: websocket.query_params["who"]}
    limits = [limit("9/hour"), limit("2/hour", messages=True, **per_key), limit("3/hour", messages=True)]
    at.app.websocket("/ws", dependencies=[Depends(each) for each in limits])(echo)

    def say(who: str, *words: str) -> list[str]:
        said = []
        with at.client.websocket_connect(f"/ws?who={who}") as websocket:
            try:
                for word in words:
                    websocket.send_text(word)
                    said.append(websocket.receive_text())
            except WebSocketDisconnect as over:
                said.append(str(over.code))
        return said

    assert say("ann", "1", "2", "3") == ["1", "2", "1008"]
    assert say("bob", "1", "2") == ["1", "1008"]  # three messages in all, and those of a refused one are given back


# Tests of the app's own


def test_one_limit_is_switched_off_by_fastapis_own_means():
    """An override of a dependency replaces the limit, in the tests of an app."""
    at = site(policy={"rules": [{"key": "everyone", "limits": "9/hour"}]}, default="1/hour")
    strict = limit("1/hour")

    @at.app.get("/x", dependencies=[Depends(strict)])
    def endpoint() -> None: ...

    assert at.codes("/x", "/x") == [200, 429]
    at.app.dependency_overrides[strict] = lambda: None
    assert at.codes("/x", times=3) == [200, 200, 200]


# Real stores


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
