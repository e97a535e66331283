"""FastAPI: limits of routers at any depth, and default limits."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from fastapi import APIRouter, Depends, FastAPI
from fastapi.exceptions import FastAPIError
from fastapi.responses import PlainTextResponse
from starlette.testclient import TestClient

from headgate import InvalidCall, Limiter
from headgate.web.fastapi import RateLimits, exempt, limit, limited
from tests.support.awaiting import awaited
from tests.support.edges import get, read_answer, scope, still
from tests.web.test_fastapi import Item, once, site
from tests.web.test_starlette import names_in

pytestmark = pytest.mark.engineless


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
    """The router's limits and the default ones leave them alone, as the document says; their own decorators stay."""
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
    """A route may be added to a router that was included before."""
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


@pytest.mark.parametrize("verb", ["hit", "permit"])
def test_a_method_of_a_limiter_is_no_dependency(verb):
    """Its key would be a parameter of the query: FastAPI refuses it by its types, or the app does not start."""
    router = APIRouter(prefix="/api")
    app = FastAPI()
    RateLimits(app)

    def start() -> None:
        @router.get("/export", dependencies=[Depends(getattr(Limiter("1/hour"), verb))])
        def export() -> str:
            return "data"

        app.include_router(router)
        with TestClient(app) as client:
            client.get("/api/export?key=mine&limit=1000/second")

    with pytest.raises((FastAPIError, InvalidCall), match=f"limiter.{verb}|Invalid args"):
        start()


def test_a_limit_without_depends_does_not_start():
    """To FastAPI it is the default of a query parameter, at an endpoint or in a dependency of it."""

    once_an_hour = limit("1/hour")

    def shared(_: Any = once_an_hour) -> None: ...
    def endpoint(_: Any = once_an_hour) -> None: ...
    def below(_: None = Depends(shared)) -> None: ...

    for name, wrong in (("endpoint", endpoint), ("shared", below)):
        app = FastAPI()
        RateLimits(app)
        app.get("/")(wrong)
        with pytest.raises(InvalidCall, match=rf"_=limit\(...\) at .*{name} limits nothing"), TestClient(app):
            pass
