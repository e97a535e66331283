"""Rules that no route of the app can meet: told of once, with the nearest route, and never in vain."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from django.core.checks import run_checks
from fastapi import APIRouter, FastAPI
from flask import Blueprint, Flask
from hypothesis import given
from hypothesis import strategies as st
from quart import Quart
from starlette.applications import Starlette
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import PlainTextResponse
from starlette.routing import BaseRoute, Host, Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles

from headgate.policy.path import compile_pattern, tidy
from headgate.web.aiohttp import RateLimits as AiohttpLimits
from headgate.web.asgi import RateLimitMiddleware as Asgi
from headgate.web.fastapi import RateLimits as FastApiLimits
from headgate.web.flask import RateLimits as FlaskLimits
from headgate.web.starlette import RateLimits as StarletteLimits
from headgate.web.unmatched_rules import Wild, meets, routes_below
from headgate.web.wsgi import RateLimitMiddleware as Wsgi
from tests.support.django_site import site
from tests.support.edges import asgi, wsgi

pytestmark = pytest.mark.engineless

BASE = {"wsgi.input": None, "SERVER_NAME": "x", "SERVER_PORT": "80", "wsgi.url_scheme": "http"}


def rules(*paths: Any, **more: Any) -> dict[str, Any]:
    """A policy with a rule for each path."""
    each = {"key": "ip", "limits": "9/hour", **more}
    return {"rules": [{"name": f"r{at}", "match": {"path": path}, **each} for at, path in enumerate(paths)]}


async def hello(request: Any) -> Any:
    return PlainTextResponse("hello")


@pytest.fixture
def said(caplog):
    """What was logged as a warning about rules."""
    caplog.set_level(logging.INFO, "headgate.web")
    return lambda level=logging.WARNING: [
        each.getMessage() for each in caplog.records if each.levelno == level and "counts nothing" in each.getMessage()
    ]


def no_route(rule: str, pattern: str, nearest: str) -> str:
    return f"rule {rule} counts nothing at {pattern}: the app has no such route; the nearest is {nearest}"


def starlette(policy: Any) -> None:
    app = Starlette(
        routes=[
            Route("/api/login", hello, methods=["POST"]),
            Route("/users/{id:int}", hello),
            Route("/files/{rest:path}", hello),
            Mount("/static", StaticFiles(directory=".")),
            Mount("/sub", routes=[Route("/thing", hello)]),
            Host("api.example.com", Starlette(routes=[Route("/hosted", hello)])),
            WebSocketRoute("/ws", hello),
        ]
    )
    StarletteLimits(app, policy)
    for _ in range(3):
        asgi(app, path="/elsewhere")


def before_starlette(policy: Any) -> None:
    """The middleware of any ASGI app, with another one in between."""
    app = Asgi(GZipMiddleware(Starlette(routes=[Route("/api/login", hello), Route("/users/{id}", hello),
                                                Mount("/sub", routes=[Route("/thing", hello)])])), policy)  # fmt: skip
    for _ in range(3):
        asgi(app, path="/elsewhere")


def fastapi(policy: Any) -> None:
    app, router = FastAPI(), APIRouter(prefix="/api")
    router.add_api_route("/login", hello, methods=["POST"])
    app.include_router(router)
    app.add_api_route("/users/{id}", hello)
    app.add_api_route("/sub/thing", hello)
    FastApiLimits(app, policy)
    for _ in range(3):
        asgi(app, path="/elsewhere")


def flask_app() -> Flask:
    app, blueprint = Flask("here"), Blueprint("api", "api", url_prefix="/api")
    blueprint.add_url_rule("/login", "login", lambda: "hello", methods=["POST"])
    app.register_blueprint(blueprint)
    app.add_url_rule("/users/<int:id>", "user", lambda **_: "hello")
    app.add_url_rule("/files/<path:rest>", "files", lambda rest: "hello")
    app.add_url_rule("/sub/thing", "thing", lambda: "hello")
    return app


def flask(policy: Any) -> None:
    app = flask_app()
    FlaskLimits(app, policy)
    for _ in range(3):
        app.test_client().get("/elsewhere")


def before_flask(policy: Any) -> None:
    app = Wsgi(flask_app().wsgi_app, policy)
    for _ in range(3):
        wsgi(app, path="/elsewhere", **BASE)


def aiohttp(policy: Any) -> None:
    async def told() -> None:
        app, within = web.Application(), web.Application()
        AiohttpLimits(app, policy)
        app.router.add_post("/api/login", hello)
        app.router.add_get("/users/{id}", hello)
        app.router.add_get("/files/{rest:.*}", hello)
        app.router.add_static("/static", ".")
        within.router.add_get("/thing", hello)
        app.add_subapp("/sub", within)
        async with TestClient(TestServer(app)) as client:
            for _ in range(3):
                await client.get("/elsewhere")

    asyncio.run(told())


EDGES = [starlette, before_starlette, fastapi, flask, before_flask, aiohttp]


@pytest.mark.parametrize("serve", EDGES)
class TestEveryFramework:
    def test_a_rule_that_meets_no_route_is_told_of_once_with_the_nearest(self, serve, said):
        """Each pattern without a route has one warning that names the most similar template."""
        serve(rules("/login", ["/user/{id}", "/users/7"], "/sub/thing/more"))
        template = "/users/<int:id>" if "flask" in serve.__name__ else "/users/{id:int}" if serve is starlette else None
        assert said() == [
            no_route("r0", "/login", "/api/login"),
            no_route("r1", "/user/{id}", template or "/users/{id}"),
            no_route("r2", "/sub/thing/more", "/sub/thing"),
        ]

    def test_nothing_is_said_of_rules_that_meet_one(self, serve, said):
        """Patterns of every kind that a route can meet cause no warning."""
        serve(rules("/api/login", "/users/{id}", "/users/*", "/**", "**/login", "/api/**", "/*/login/", "/sub/{any}"))
        assert said() == said(logging.INFO) == []

    def test_rules_for_paths_that_are_not_there_are_no_alarm(self, serve, said):
        """A path that resembles no route is no alarm, nor one that looks like an answer, nor a rule that counts 404."""
        serve(rules("/wp-admin/**", "/.env"))
        assert said() == []
        assert len(said(logging.INFO)) == 2
        serve(rules("/login", act={"shadow": {"status": 200}}))
        serve(rules("/login", count={"when": {"status": [404]}}))
        assert said() == [] and len(said(logging.INFO)) == 2

    def test_an_app_without_a_policy_is_not_compared(self, serve, said):
        """Rules without a path cause no warning."""
        serve({"rules": [{"key": "ip", "limits": "9/hour"}]})
        assert said() == []


@pytest.mark.parametrize("serve", [starlette, aiohttp])
def test_what_is_below_mounts_and_catch_alls_may_be_anything(serve, said):
    """Paths of files and of catch-all routes cause no warning."""
    serve(rules("/static/app.js", "/static/**", "/files/a/b", "/files/*.png"))
    assert said() == said(logging.INFO) == []


@pytest.mark.parametrize("serve", [starlette, fastapi, flask, aiohttp])
def test_a_rule_for_a_method_that_is_not_answered_there_is_told_of(serve, said):
    """The warning names the method of the rule, and OPTIONS is always answered."""
    given = rules("/api/login")
    given["rules"][0]["match"]["method"] = ["PUT"]
    serve(given)
    [words] = said()
    assert words.startswith("rule r0 counts nothing at /api/login: it is for PUT, and ")
    for method in ("POST", "OPTIONS"):
        given["rules"][0]["match"]["method"] = method
        serve(given)
    assert len(said()) == 1


def test_websockets_are_routes_for_their_methods(said):
    """A rule for WEBSOCKET or MESSAGE meets the route of a websocket, and no other route."""
    given = rules("/ws", "/ws", "/users/{id}")
    for rule, method in zip(given["rules"], ("WEBSOCKET", "MESSAGE", "WEBSOCKET"), strict=True):
        rule["match"]["method"] = method
    starlette(given)
    [words] = said()
    assert words == "rule r2 counts nothing at /users/{id}: it is for WEBSOCKET, and the route answers GET and HEAD"


def test_django_tells_in_the_log_and_when_it_checks(said):
    """The warning of the log is also one of `manage.py check`."""
    policy = rules("/serch/**", "/search/{word}", "/admin/login", "/de/page/7", "/one/items/7", "/wp-admin/**")
    with site(policy=policy) as client:
        for _ in range(3):
            client.get("/free/")
        [words] = said()
        assert words == no_route("r0", "/serch/**", "/search/<slug:word>/")
        found = [each for each in run_checks() if each.id == "headgate.W002"]
        assert [each.msg for each in found] == [f"HEADGATE['POLICY']: {words}."]


def test_an_app_within_an_aiohttp_app_is_compared_as_it_routes(said):
    """Rules of the app within are compared with its own paths."""

    async def told() -> None:
        inner, outer = web.Application(), web.Application()
        AiohttpLimits(inner, rules("/login", "/logon"))
        inner.router.add_get("/login", aiohttp_hello)
        outer.add_subapp("/a", inner)
        async with TestClient(TestServer(outer)) as client:
            assert (await client.get("/a/login")).status == 200

    asyncio.run(told())
    assert said() == [no_route("r1", "/logon", "/login")]


async def aiohttp_hello(request: web.Request) -> web.Response:
    return web.Response()


def test_a_long_list_of_paths_that_are_not_there_is_meant_so(said):
    """The nearest route is looked for a few times only, as an app starts to serve."""
    fastapi(rules([f"/users/{at}/mail" for at in range(25)]))
    assert len(said()) == 20 and len(said(logging.INFO)) == 5


def test_quarts_routes_are_known():
    """The routes of a Quart app are read from its ASGI app."""
    app = Quart("here")
    app.add_url_rule("/login", "login", lambda: "hello")
    found = routes_below(app.asgi_app)
    assert found is not None and "/login" in [each.template for each in found]


def test_a_new_policy_is_compared_again(said, tmp_path):
    """A policy that was read again is compared with the routes at the next request."""
    file = tmp_path / "policy.json"
    file.write_text('{"rules": [{"name": "r", "key": "ip", "limits": "9/hour", "match": {"path": "/login"}}]}')
    app = Starlette(routes=[Route("/login", hello)])
    limits = StarletteLimits(app, file)
    asgi(app, path="/login")
    assert said() == []
    file.write_text('{"rules": [{"name": "r", "key": "ip", "limits": "9/hour", "match": {"path": "/logon"}}]}')
    assert limits.reload()
    asgi(app, path="/login")
    assert said() == [no_route("r", "/logon", "/login")]


def test_an_app_that_cannot_tell_its_routes_is_served_all_the_same(said):
    """A route that raises when it is looked at stops the comparison and nothing else."""

    class Odd(BaseRoute):
        @property
        def path(self) -> str:
            raise LookupError

    app = Starlette(routes=[Route("/login", hello), Odd()])
    StarletteLimits(app, rules("/logon"))
    assert asgi(app, path="/login").status == 200
    assert said() == []


PARTS = st.lists(st.sampled_from(["a", "b", "ab", Wild.ONE, Wild.MANY]), min_size=1, max_size=4)
WORDS = st.lists(st.sampled_from(["a", "b", "a*", "{one}", "**", "*"]), min_size=1, max_size=4)
FILLS = st.lists(st.sampled_from(["a", "b", "ab", "x"]), max_size=2)


@given(PARTS, WORDS, st.data())
def test_a_path_that_a_route_and_a_pattern_fit_is_a_meeting(parts, words, data):
    """Whatever stands for what is not known in the route."""
    try:
        pattern = compile_pattern("/" + "/".join(words))
    except ValueError:
        return
    filled: list[str] = []
    for part in parts:
        if part is Wild.MANY:
            filled += data.draw(FILLS)
        else:
            filled.append(data.draw(st.sampled_from(["a", "b", "ab", "x"])) if part is Wild.ONE else part)
    if pattern.fits(tidy("/" + "/".join(filled))) and filled:
        assert meets(pattern, parts)


@pytest.mark.parametrize(
    ("pattern", "parts", "met"),
    [
        ("/a/{x}/b", ["a", Wild.ONE, "b"], True), ("/a/{x}/b", ["a", Wild.ONE, "c"], False),
        ("/a/b", ["a"], False), ("/a", ["a", "b"], False), ("/a/**", ["a"], True), ("/**/z", ["a", "b"], False),
        ("/**/z", ["a", Wild.ONE], True), ("/a*", ["b"], False), ("/a*", ["ab"], True), ("/a/b/c", [Wild.MANY], True),
        ("/a/b/c", ["a", Wild.MANY], True), ("/b/{rest:path}", ["a", Wild.MANY], False),
        ("/a", [Wild.MANY, "b"], False),
        ("/", [""], True), ("/x/**/y/**/z", ["x", "y", "q", "z"], True), ("/x/**/y/**/z", ["x", "q", "z"], False),
    ],
)  # fmt: skip
def test_meetings(pattern, parts, met):
    """A pattern and the parts of a template meet exactly where one path can fit both."""
    assert meets(compile_pattern(pattern), parts) is met
