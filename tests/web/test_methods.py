"""Methods: HEAD is a GET to a policy, as it is to frameworks, and letters are read as frameworks read them."""

from __future__ import annotations

from typing import Any

import pytest
from flask import Flask
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from headgate.policy import Policy
from headgate.web.flask import RateLimits as FlaskLimits
from headgate.web.starlette import RateLimits as StarletteLimits
from headgate.web.wsgi import RateLimitMiddleware as Wsgi
from tests.support.django_site import site
from tests.support.edges import PEER, asgi, responder, still, wsgi

pytestmark = pytest.mark.engineless


GETS: dict[str, Any] = {"match": {"method": "GET"}, "key": "ip", "limits": "2/hour"}


def test_a_rule_for_head_is_for_head_alone():
    """A rule for HEAD counts no GET, and a rule for GET can leave HEAD out."""
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
    FlaskLimits(apps[1], policy, store=still())
    base = {"wsgi.input": None, "SERVER_NAME": "x", "SERVER_PORT": "80", "wsgi.url_scheme": "http"}
    for limited in (Wsgi(apps[0].wsgi_app, policy, store=still()), apps[1]):
        assert [wsgi(limited, method, **base).status for _ in range(3)] == [200, 200, 429]
    with site(policy=policy) as client:
        assert [client.generic(method, "/").status_code for _ in range(3)] == [200, 200, 429]


def test_letters_make_no_difference_before_an_asgi_app():
    """A rule for GET counts `get`, which the framework refuses."""
    app = Starlette(routes=[Route("/", lambda request: PlainTextResponse("hello"))])
    StarletteLimits(app, {"rules": [GETS]}, store=still())
    assert [asgi(app, "get", client=(PEER, 1)).status for _ in range(3)] == [405, 405, 429]


def test_rules_say_which_methods_they_are_for():
    """A rule for `get` lists GET and HEAD."""
    [rule] = Policy({"rules": [{**GETS, "match": {"method": ["get", "PUT"]}}]}).rules
    assert rule.match.methods == frozenset(("GET", "HEAD", "PUT"))
