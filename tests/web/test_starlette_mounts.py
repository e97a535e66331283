"""Starlette: default limits and limits of endpoints below mounts and hosts."""

from __future__ import annotations

import contextlib
import functools
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Host, Mount, Route, Router
from starlette.staticfiles import StaticFiles
from starlette.testclient import TestClient

from headgate.testing import frozen
from headgate.web.starlette import exempt, limited
from tests.web.test_starlette import EVERYONE, Site, hello, hello_in_a_thread, names_in, serve

pytestmark = pytest.mark.engineless


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


def sub_app() -> Starlette:
    """Made by a function: two of them have endpoints of the same names."""

    @limited("1/hour")
    async def item(request: Request) -> Response:
        return PlainTextResponse(request.url.path)

    return Starlette(routes=[Route("/{id}", item)])


@pytest.mark.parametrize("root_path", ["", "/behind", "/a"])
def test_mounted_apps_have_counts_of_their_own_and_whole_refusals(root_path):
    """The template of the mount counts, never the URL; a prefix that a server adds to every path is no part of it."""
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
