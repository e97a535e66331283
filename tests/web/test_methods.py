"""Methods: HEAD is a GET to a policy, as it is to frameworks, and letters are read as frameworks read them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from flask import Flask
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from headgate import MemoryStore
from headgate.policy import Policy
from headgate.testing import ManualClock
from headgate.web.aiohttp import RateLimits as AiohttpLimits
from headgate.web.flask import RateLimits as FlaskLimits
from headgate.web.starlette import RateLimits as StarletteLimits
from headgate.web.wsgi import RateLimitMiddleware as Wsgi
from tests.support.django_site import site
from tests.support.edges import LATER, PEER, asgi, responder, wsgi

pytestmark = pytest.mark.engineless

ORDER = ("HEAD", "GET", "HEAD", "GET", "POST")
COUNTED = [200, 200, 429, 429]
GETS: dict[str, Any] = {"match": {"method": "GET"}, "key": "ip", "limits": "2/hour"}


def store() -> MemoryStore:
    """By a clock that stands still."""
    return MemoryStore(clock=ManualClock(LATER))


def by_starlette(policy: Any) -> list[int]:
    app = Starlette(routes=[Route("/", lambda request: PlainTextResponse("hello"))])
    StarletteLimits(app, policy, store=store())
    return [asgi(app, method).status for method in ORDER]


def by_flask(policy: Any) -> list[int]:
    app = Flask("here")
    FlaskLimits(app, policy, store=store())
    app.add_url_rule("/", "index", lambda: "hello")
    return [app.test_client().open("/", method=method).status_code for method in ORDER]


def by_wsgi_in_front_of_flask(policy: Any) -> list[int]:
    app = Flask("here")
    app.add_url_rule("/", "index", lambda: "hello")
    limited = Wsgi(app.wsgi_app, policy, store=store())
    return [wsgi(limited, method, **{"wsgi.input": None, "SERVER_NAME": "x", "SERVER_PORT": "80", "wsgi.url_scheme":
                                     "http"}).status for method in ORDER]  # fmt: skip


def by_django(policy: Any) -> list[int]:
    with site(policy=policy) as client:
        return [client.generic(method, "/").status_code for method in ORDER]


def by_aiohttp(policy: Any) -> list[int]:
    async def hello(request: web.Request) -> web.Response:
        return web.Response(text="hello")

    async def told() -> list[int]:
        app = web.Application()
        AiohttpLimits(app, policy, store=store())
        app.router.add_get("/", hello)
        async with TestClient(TestServer(app)) as client:
            return [(await client.request(method, "/")).status for method in ORDER]

    return asyncio.run(told())


@pytest.mark.parametrize("ask", [by_starlette, by_flask, by_wsgi_in_front_of_flask, by_django, by_aiohttp])
class TestHead:
    """Frameworks answer a HEAD with the handler of GET."""

    def test_a_rule_for_get_counts_it(self, ask):
        """By the short way, and by the long way that a condition takes."""
        assert ask({"rules": [GETS]})[:4] == COUNTED
        assert ask({"rules": [{**GETS, "match": {"any": [{"method": "GET"}]}}]})[:4] == COUNTED

    def test_it_costs_what_a_get_costs(self, ask):
        """Unless the rule names it."""
        rule = {"key": "ip", "limits": "4/hour", "cost": {"GET": 2, "default": 0}}
        assert ask({"rules": [rule]})[:4] == COUNTED
        assert ask({"rules": [{**rule, "cost": {"GET": 2, "HEAD": 4, "default": 0}}]})[:4] == [200, 429, 429, 429]

    def test_it_has_the_budget_of_a_get_where_each_method_has_its_own(self, ask):
        assert ask({"rules": [{"key": ["ip", "method"], "limits": "2/hour"}]})[:4] == COUNTED


def test_a_rule_for_head_is_for_head_alone():
    judged = responder({"match": {"method": "HEAD"}})
    assert judged.kinds(3, "GET") == ["pass"] * 3 and judged.left() == 2
    assert judged.kinds(3, "HEAD") == ["pass", "pass", "deny"]
    without = responder({"match": {"method": "GET", "not": {"method": "HEAD"}}})
    assert without.kinds(3, "HEAD") == ["pass"] * 3


@pytest.mark.parametrize("method", ["post", "Post"])
def test_letters_make_no_difference_where_the_framework_sees_none(method):
    """Flask and Django call the view of POST for `post`."""
    policy = {"rules": [{**GETS, "match": {"method": "POST"}}]}
    apps = [Flask("one"), Flask("two")]
    for app in apps:
        app.add_url_rule("/", "index", lambda: "hello", methods=["POST"])
    FlaskLimits(apps[1], policy, store=store())
    base = {"wsgi.input": None, "SERVER_NAME": "x", "SERVER_PORT": "80", "wsgi.url_scheme": "http"}
    for limited in (Wsgi(apps[0].wsgi_app, policy, store=store()), apps[1]):
        assert [wsgi(limited, method, **base).status for _ in range(3)] == [200, 200, 429]
    with site(policy=policy) as client:
        assert [client.generic(method, "/").status_code for _ in range(3)] == [200, 200, 429]


def test_letters_make_no_difference_before_an_asgi_app():
    app = Starlette(routes=[Route("/", lambda request: PlainTextResponse("hello"))])
    StarletteLimits(app, {"rules": [GETS]}, store=store())
    assert [asgi(app, "get", client=(PEER, 1)).status for _ in range(3)] == [405, 405, 429]


def test_rules_say_which_methods_they_are_for():
    [rule] = Policy({"rules": [{**GETS, "match": {"method": ["get", "PUT"]}}]}).rules
    assert rule.match.methods == frozenset(("GET", "HEAD", "PUT"))
