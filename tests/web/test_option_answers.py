"""Answers of an edge's functions that no rule can use: the request fails, and the message names the function."""

from __future__ import annotations

from typing import Any

import pytest

from headgate import InvalidCall
from headgate.web.asgi import RateLimitMiddleware
from headgate.web.wsgi import RateLimitMiddleware as WsgiMiddleware
from tests.support.django_site import site
from tests.support.edges import asgi, plain, plain_wsgi, still, wsgi

pytestmark = pytest.mark.engineless

KEYS = {"client": "ip", "claims": {"claim": "sub"}, "plan": "ip"}
WANTED = {"client": "an address as text", "claims": "a mapping of claims", "plan": "the name of a plan"}
PLANS = {"pro": "9/minute", "default": "1/minute"}


def policy(name: str) -> dict[str, Any]:
    return {"rules": [{"key": KEYS[name], "limits": PLANS}]}


@pytest.mark.parametrize("name", KEYS)
@pytest.mark.parametrize("answer", [["a"], 7, b"10.0.0.1"])
def test_an_answer_of_another_type_fails_the_request_and_names_its_function(name, answer):
    """In threads and in event loops. A number as the plan would be the default one, without a word."""
    said = rf"{name} must return {WANTED[name]}, or None; it returned "
    with pytest.raises(InvalidCall, match=said):
        wsgi(WsgiMiddleware(plain_wsgi, policy(name), store=still(), **{name: lambda asked: answer}))
    with pytest.raises(InvalidCall, match=said):
        asgi(RateLimitMiddleware(plain, policy(name), store=still(), **{name: lambda asked: answer}))


@pytest.mark.parametrize("name", ["claims", "plan"])
def test_an_answer_that_was_awaited_is_checked_too(name):
    """The function may be `async def`."""

    async def wrong(asked: Any) -> Any:
        return ["a"]

    with pytest.raises(InvalidCall, match=rf"{name} must return .* returned \['a'\]"):
        asgi(RateLimitMiddleware(plain, policy(name), store=still(), **{name: wrong}))


@pytest.mark.parametrize("name", KEYS)
def test_none_is_an_answer_of_every_function(name):
    """A request without an address, claims or a plan is counted as such."""
    app = WsgiMiddleware(plain_wsgi, policy(name), store=still(), **{name: lambda asked: None})
    assert [wsgi(app).status for _ in range(2)] == [200, 429]


def test_a_plan_of_a_django_site_is_checked_too():
    """Its function takes Django's request."""
    with site(policy=policy("plan"), plan=lambda request: 7) as client, pytest.raises(InvalidCall, match="returned 7"):
        client.get("/")
