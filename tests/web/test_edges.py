"""Every edge: what all of them do, whatever the framework, by the suite that others can use."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.clock import SECOND
from headgate.policy import bans
from headgate.testing.edges import EdgeSuite
from headgate.testing.edges.outcomes import as_asked
from tests.support.adapters.aiohttp import AiohttpSuite
from tests.support.adapters.bare import AsgiSuite, WsgiSuite
from tests.support.adapters.django import DjangoAsyncSuite, DjangoSuite, DrfSuite
from tests.support.adapters.fastapi import FastApiDependencySuite, FastApiSuite
from tests.support.adapters.flask import FlaskSuite
from tests.support.adapters.starlette import StarletteMiddlewareSuite, StarletteSuite
from tests.support.faults import calls
from tests.support.servers import Server, wait_until

pytestmark = pytest.mark.engineless

EDGES: list[type[EdgeSuite]] = [
    StarletteSuite,
    FastApiDependencySuite,
    FlaskSuite,
    DjangoSuite,
    DjangoAsyncSuite,
    AiohttpSuite,
]


class TestStarlette(StarletteSuite):
    """`RateLimits` around Starlette."""


class TestStarletteMiddleware(StarletteMiddlewareSuite):
    """`RateLimitMiddleware` among the middleware of Starlette."""


class TestFastApi(FastApiSuite):
    """Decorators at the endpoints of FastAPI."""


class TestFastApiDependencies(FastApiDependencySuite):
    """Dependencies at the endpoints of FastAPI."""


class TestFlask(FlaskSuite):
    """The extension of Flask."""


class TestDjango(DjangoSuite):
    """Django under WSGI."""


class TestDjangoAsync(DjangoAsyncSuite):
    """Django under ASGI."""


class TestDrf(DrfSuite):
    """Views of Django REST framework."""


class TestAiohttp(AiohttpSuite):
    """aiohttp on real sockets."""


@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize(
    ("on_error", "expected"), [("allow", [200] * 3), ("local", [200, 429, 429]), ("deny", [503] * 3)]
)
def test_a_store_that_goes_away_and_comes_back(edge, on_error, expected):
    """Each limit follows its `on_error` while Redis is away; when it is back, it counts again."""
    rule: dict[str, Any] = {"limits": "1/hour", "on_error": on_error}
    with Server() as server:
        url = f"{server.url}?deadline=1&remember_refusals=0"
        with edge().limiting("endpoint", rule, store=url) as site:
            assert site.codes(times=2) == [200, 429]
            server.kill()
            assert site.codes(times=3) == expected
            server.start()
            wait_until(lambda: site.ask().status and server.client().dbsize() > 0, "the store counts again")


@pytest.mark.parametrize("edge", EDGES)
def test_redis_counts_exactly(edge, server):
    """Of twenty failures at once five pass, and what a refusal or a response gives back is given back on the server."""
    failures = {"limits": "5/hour", "count": {"when": {"status": [401]}}}
    wide = {"name": "wide", "key": "everyone", "limits": "9/hour"}
    policy = {"rules": [{"name": "front", "key": "everyone", "limits": "19/hour"}]}
    url = f"{server.url}?deadline=5&remember_refusals=0"
    with edge().limiting("endpoint", failures, wide, handle=as_asked, policy=policy, store=url) as site:
        assert site.codes("/?status=200") == [200]
        with site.asking(20, "/?status=401") as asked:
            assert sorted(each.result().status for each in asked) == [401] * 5 + [429] * 15
        told = site.told("/?status=200", client=edge.other_client)
    assert [each.split(";t")[0] for each in told.split(", ")] == ['"front";r=12', '"api";r=5', '"wide";r=2']


@pytest.mark.parametrize("edge", [AsgiSuite, WsgiSuite, *EDGES])
def test_a_store_that_was_opened_for_an_app_is_closed_with_it(edge, server):
    """No connection is left when the app ends; when it starts again, its counts are there."""
    for expected in ([200, 429], [429, 429]):
        with edge().limiting("policy", {"limits": "1/hour"}, store=f"{server.url}?deadline=5") as site:
            assert site.codes(times=2) == expected
        assert [each["cmd"] for each in server.client().client_list()] == ["client|list"]


@pytest.mark.parametrize("edge", EDGES)
def test_a_charge_that_stays_is_told_without_another_question(edge, server, monkeypatch):
    """The store is asked once for a response that counts, and again only where something is given back."""
    monkeypatch.setattr(bans, "FRESH", 3600 * SECOND)  # a busy machine takes longer than bans stay known
    failures = {"limits": "9/hour", "count": {"when": {"status": [401]}}}
    with edge().limiting("endpoint", failures, handle=as_asked, store=f"{server.url}?deadline=5") as site:
        site.ask("/?status=200")  # which sends the scripts
        asked = []
        for status in (401, 200):
            before = calls(server, "eval", "evalsha")
            site.ask(f"/?status={status}")
            asked.append(calls(server, "eval", "evalsha") - before)
    assert asked == [1, 3]
