"""Policies of the gallery against abuse that is no attack on a password: a short story for each."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.policy.test_gallery import Reply, Site

pytestmark = pytest.mark.engineless


def test_retry_loops():
    """A client that fails thirty times in a minute waits, longer each time; one that succeeds is not touched."""
    site = Site("retry-loops.yaml")
    for _ in range(3):
        assert set(site.statuses(20, "GET", "/api/items")) == {200}
        site.clock.advance(1)
    site.clock.advance(60)
    site.status = 500
    for _ in range(3):
        assert site.statuses(10, "GET", "/api/items") == [500] * 10
        site.clock.advance(1)
    waits = []
    for _ in range(3):
        refused = site.ask("GET", "/api/items")
        assert refused.status == 429
        waits.append(refused.retry_after)
        site.clock.advance(float(refused.retry_after or 0) + 60)
        assert site.statuses(30, "GET", "/api/items", "198.51.100.7") == [500] * 30, "another client has its own count"
        assert site.statuses(30, "GET", "/api/items") == [500] * 30
    assert waits == [60, 600, 3600]


def test_a_loop_without_a_pause():
    """More than a person can send is refused, whether it succeeds or not."""
    site = Site("retry-loops.yaml")
    replies = [site.ask("GET", "/api/items") for _ in range(41)]
    assert [reply.status for reply in replies] == [200] * 40 + [429]
    assert replies[-1].violated == ["loop"]


def test_slow_clients():
    """Two uploads of one client are under way, and the third is refused until one of them ends."""
    site = Site("slow-clients.yaml")
    answer, ends = site.gate.app, asyncio.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        await ends.wait()
        await answer(scope, receive, send)

    async def asked(ip: str = "203.0.113.9") -> Reply:
        return await site.request("POST", "/uploads/film", ip, {}, None)

    async def story() -> list[int]:
        under_way = [asyncio.ensure_future(asked()) for _ in range(2)]
        other = asyncio.ensure_future(asked("198.51.100.7"))
        await asyncio.sleep(0)
        refused = await asked()
        assert (refused.violated, refused.retry_after) == (["uploads"], None)
        ends.set()
        ended = await asyncio.gather(*under_way, other)
        return [refused.status, *(each.status for each in ended), (await asked()).status]

    site.gate.app = slow
    assert asyncio.run(story()) == [429, 200, 200, 200, 200]


def test_rapid_reset():
    """Streams that a client opens and takes back count as requests: 200 at once, then a minute of refusals."""
    site = Site("rapid-reset.yaml")
    assert site.statuses(201, "GET", "/") == [200] * 200 + [429]
    site.clock.advance(59)
    assert site.ask("GET", "/").status == 429
    assert site.ask("GET", "/", "198.51.100.7").status == 200
    site.clock.advance(1)
    assert site.ask("GET", "/").status == 200
