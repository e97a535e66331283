"""aiohttp: websockets and their messages."""

from __future__ import annotations

import asyncio
import functools
from typing import Any

import pytest
from aiohttp import WSMsgType, web

from headgate.web.aiohttp import limited
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
