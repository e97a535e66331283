"""Limits at endpoints: what they share with the policy in front, with lists, stores, scripts and the app's handlers."""

from __future__ import annotations

import asyncio
import logging

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from headgate.web.asgi_requests import read_scope
from headgate.web.starlette import RateLimits, limited
from tests.support.edges import get
from tests.support.inside import endpoint_responders, paths_kept

pytestmark = pytest.mark.engineless

LIMIT = limited("1/hour")


async def hello(request):
    return PlainTextResponse("hello")


def serve(policy=None, limit=LIMIT, app=None, **options):
    site = Starlette(routes=[Route("/x/{n}", limit(hello)), Route("/y", hello)], **(app or {}))
    return site, RateLimits(site, policy, **options)


def test_urls_do_not_fill_the_memory_of_every_endpoint():
    """policy.rules_for remembers 4096 methods and paths PER ENDPOINT (0.9 KB each), though its rules have no paths."""
    app, limits = serve(limit=limited("1000000/hour", key=lambda request: "a"))

    async def story():
        for at in range(500):
            await get(app, "GET", f"/x/{at}")

    asyncio.run(story())
    (responder,) = endpoint_responders(limits)
    assert paths_kept(responder.compiled.policy) < 10


def test_a_websocket_is_one_whatever_else_is_in_its_scope():
    """A scope of a websocket with a method is still read as WEBSOCKET."""
    scope: dict[str, object] = {"type": "websocket", "method": "GET", "path": "/", "headers": [], "client": None}
    assert read_scope(scope, None).method == "WEBSOCKET"


def test_an_outage_does_not_fill_the_log(caplog):
    """Twenty requests without a store make fewer than five warnings."""
    app, _ = serve(store="redis://127.0.0.1:9?deadline=0.1")
    with caplog.at_level(logging.WARNING, "headgate.policy"), TestClient(app) as client:
        for _ in range(20):
            client.get("/x/1")
    assert 0 < len([record for record in caplog.records if record.name.startswith("headgate")]) < 5
