"""aiohttp: websockets and their messages."""

from __future__ import annotations

import asyncio
import functools
from typing import Any

import pytest
from aiohttp import WSMsgType, web

from headgate.web.aiohttp import RateLimits, limited
from tests.support.awaiting import awaited
from tests.web.test_aiohttp import chat, hello, opened, served, site, statuses

pytestmark = pytest.mark.engineless


@pytest.mark.parametrize("by", ["limited", "default", "policy", "policy that names websockets"])
@awaited
async def test_websockets_are_limited_at_the_handshake(by):
    """A refusal is an HTTP response, whichever limit refused; open connections stay open."""
    rule: dict[str, Any] = {"key": "ip", "limits": "2/minute"}
    if by.endswith("websockets"):
        rule["match"] = {"method": "WEBSOCKET"}
    handler = limited("2/minute")(functools.partial(chat)) if by == "limited" else chat
    app = site(
        web.get("/", handler),
        policy={"rules": [rule]} if by.startswith("policy") else None,
        default="2/minute" if by == "default" else None,
    )
    async with served(app) as client, client.ws_connect("/") as first:
        assert [await opened(client) for _ in range(2)] == [101, 429]
        await first.send_str("ho")
        assert await first.receive_str(timeout=10) == "hoho"


@awaited
async def test_to_ask_for_an_upgrade_is_no_way_around_a_limit():
    """A page is a GET whatever the client asks for; a websocket is not counted as one."""
    rules = [
        {"name": "pages", "match": {"method": "GET"}, "key": "ip", "limits": "2/minute"},
        {"name": "sockets", "match": {"method": "WEBSOCKET"}, "key": "ip", "limits": "1/minute"},
    ]
    upgrade = {"Upgrade": "websocket", "Connection": "upgrade"}
    async with served(site(web.get("/", hello), web.get("/ws", chat), policy={"rules": rules})) as client:
        assert await opened(client, "/ws") == 101
        assert await opened(client, "/ws") == 429
        assert await statuses(client, 2, "/", headers=upgrade) == [200, 200]
        assert await statuses(client, 1, "/", headers=upgrade) == [429]


@awaited
async def test_a_message_too_many_closes_the_websocket():
    """Of text or of bytes, with 1008; the handler sees the end of the stream; connections of other keys go on."""
    ended = asyncio.Event()

    async def noted(request: web.Request) -> web.WebSocketResponse:
        ws = await chat(request)
        ended.set()
        return ws

    rule = {"match": {"method": "MESSAGE"}, "key": {"query": "user"}, "limits": "2/minute"}
    async with (
        served(site(web.get("/", noted), policy={"rules": [rule]})) as client,
        client.ws_connect("/?user=ann") as ann,
        client.ws_connect("/?user=bob") as bob,
    ):
        for _ in range(2):
            await ann.send_str("ha")
            assert await ann.receive_str(timeout=10) == "haha"
        await ann.send_bytes(b"ha")
        message = await ann.receive(timeout=10)
        assert (message.type, message.data, message.extra) == (WSMsgType.CLOSE, 1008, "rate limited")
        await asyncio.wait_for(ended.wait(), 10)
        await bob.send_str("ho")
        assert await bob.receive_str(timeout=10) == "hoho"


@awaited
async def test_a_websocket_keeps_the_permit_of_its_request():
    """It waits once for the load shedder and is counted once; a request that waits does not take its place."""
    begun, go = asyncio.Event(), asyncio.Event()

    async def late(request: web.Request) -> web.WebSocketResponse:
        begun.set()
        await go.wait()
        return await chat(request)

    app = web.Application()
    shedder: Any = RateLimits(app, {"rules": [], "shed": {"limit": 1, "timeout": "60s"}}).shedder
    app.add_routes([web.get("/", late), web.get("/page", hello)])
    async with served(app) as client:
        opening = asyncio.ensure_future(client.ws_connect("/"))
        await begun.wait()
        page = asyncio.ensure_future(client.get("/page"))
        while not shedder.stats().waiting:
            await asyncio.sleep(0)
        go.set()
        async with await opening as socket:
            await socket.send_str("ho")
            assert await socket.receive_str(timeout=10) == "hoho"
            assert (shedder.stats().in_flight, shedder.stats().admitted, page.done()) == (1, 1, False)
        assert (await page).status == 200
    assert (shedder.stats().in_flight, shedder.stats().admitted) == (0, 2)


@pytest.mark.parametrize("classes", [{}, {"critical": {"method": "WEBSOCKET"}}], ids=["same", "other"])
@awaited
async def test_a_websocket_that_a_rule_refuses_gives_its_permit_back(classes):
    """Whether its class is that of its request, or one of websockets only."""
    rule = {"name": "sockets", "match": {"method": "WEBSOCKET"}, "key": "ip", "limits": "1/minute"}
    app = web.Application()
    shedder: Any = RateLimits(app, {"rules": [rule], "shed": {"limit": 1, "classes": classes}}).shedder
    app.add_routes([web.get("/", chat)])
    async with served(app) as client:
        assert [await opened(client) for _ in range(2)] == [101, 429]
        while shedder.stats().in_flight:
            await asyncio.sleep(0)
