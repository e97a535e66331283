"""Starlette: websockets and their messages."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from starlette.endpoints import WebSocketEndpoint
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from headgate.web.starlette import Limit, limited
from tests.support.edges import PEER, exchange
from tests.web.test_starlette import serve

pytestmark = pytest.mark.engineless


async def echo(websocket: WebSocket) -> None:
    await websocket.accept()
    with contextlib.suppress(WebSocketDisconnect):
        while True:
            await websocket.send_text(await websocket.receive_text())


class Echo(WebSocketEndpoint):
    encoding = "text"

    async def on_receive(self, websocket: WebSocket, data: Any) -> None:
        await websocket.send_text(data)


SOCKET = {"type": "websocket", "path": "/ws", "query_string": b"", "headers": [], "client": (PEER, 4711)}


CONNECT = {"type": "websocket.connect"}


LEAVES = {"type": "websocket.disconnect", "code": 1000}


def talk(app: Any, *messages: str, **more: Any) -> list[dict[str, Any]]:
    """Everything a websocket is sent that says these things and leaves."""
    says = [{"type": "websocket.receive", "text": each} for each in messages]
    return asyncio.run(exchange(app, {**SOCKET, **more}, CONNECT, *says, LEAVES))


def kinds(sent: list[dict[str, Any]]) -> list[str]:
    return [message["type"].removeprefix("websocket.") for message in sent]


@pytest.mark.parametrize("endpoint", [echo, Echo])
def test_a_websocket_too_many_is_closed_once_or_answered_once(endpoint):
    """With the whole refusal where the server can send it."""
    app = serve(WebSocketRoute("/ws", limited("1/hour")(endpoint))).app
    assert kinds(talk(app, "a")) == ["accept", "send"]
    assert talk(app, "a") == [{"type": "websocket.close", "code": 1008, "reason": "rate limited"}]
    start, body = talk(app, "a", extensions={"websocket.http.response": {}})
    assert (start["type"], start["status"]) == ("websocket.http.response.start", 429)
    assert dict(start["headers"])[b"retry-after"] == b"3600"
    assert (body["type"], b"quota-exceeded" in body["body"]) == ("websocket.http.response.body", True)


@pytest.mark.parametrize("endpoint", [echo, Echo])
def test_each_message_counts_where_the_limit_says_so(endpoint):
    """The client counts, over all of its connections; connections have a count of their own."""
    talking = limited("3/hour")(limited("3/hour", messages=True)(endpoint))
    app = serve(WebSocketRoute("/ws", talking), default="1/hour").app
    assert kinds(talk(app, "a", "b")) == ["accept", "send", "send"]
    sent = talk(app, "c", "d", "e")
    assert kinds(sent) == ["accept", "send", "close"] and sent[-1]["code"] == 1008
    assert kinds(talk(app)) == ["accept"]
    assert kinds(talk(app)) == ["close"]


def test_default_limits_are_for_websockets_too():
    """An endpoint like any other."""
    app = serve(WebSocketRoute("/ws", echo), WebSocketRoute("/class", Echo), default="1/hour").app
    assert [kinds(talk(app)), kinds(talk(app))] == [["accept"], ["close"]]
    assert [kinds(talk(app, path="/class")), kinds(talk(app, path="/class"))] == [["accept"], ["close"]]


def test_a_limit_asked_by_hand_after_the_handshake_closes():
    """The handshake cannot be answered twice."""
    limit = Limit("1/hour")

    async def endpoint(websocket: WebSocket) -> None:
        await websocket.accept()
        await limit(connection=websocket)
        await limit(connection=websocket)

    app = serve(WebSocketRoute("/ws", endpoint), default=None).app
    assert kinds(talk(app, extensions={"websocket.http.response": {}})) == ["accept"]
    assert kinds(talk(app, extensions={"websocket.http.response": {}})) == ["accept", "close"]
