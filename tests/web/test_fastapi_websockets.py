"""FastAPI: websockets and their messages."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import APIRouter, Depends, WebSocket
from starlette.websockets import WebSocketDisconnect

from headgate.web.fastapi import limit, limited
from tests.web.test_fastapi import once, site
from tests.web.test_starlette_websockets import echo

pytestmark = pytest.mark.engineless


async def echo_by_another_name(ws: WebSocket, room: str = "") -> None:
    await echo(ws)


@pytest.mark.parametrize("way", ["dependency", "decorator", "default", "router"])
def test_a_websocket_too_many_is_refused(way):
    """However it is limited; a router included twice has two counts."""
    at = site(default="1/hour" if way == "default" else None)
    router = APIRouter(dependencies=[once()] if way == "router" else [])
    endpoint = limited("1/hour")(echo_by_another_name) if way == "decorator" else echo_by_another_name
    router.websocket("/ws/{room}", dependencies=[once()] if way == "dependency" else [])(endpoint)
    at.app.include_router(router, prefix="/a")
    at.app.include_router(router, prefix="/b")
    for prefix in ("/a", "/b"):
        with at.client.websocket_connect(f"{prefix}/ws/1") as websocket:
            websocket.send_text("hi")
            assert websocket.receive_text() == "hi"
        with pytest.raises(WebSocketDisconnect) as refused, at.client.websocket_connect(f"{prefix}/ws/2"):
            pass
        answer: Any = refused.value
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "3600")
        assert answer.json()["violated-policies"] == [f"{prefix[1:]}-ws-room"]


def test_own_limits_of_a_websocket_replace_the_default_ones():
    """A websocket in a router is no exception."""
    at, router = site(default="1/hour"), APIRouter()
    router.websocket("/ws", dependencies=[Depends(limit("2/hour"))])(echo)
    at.app.include_router(router, prefix="/r")
    for _ in range(2):
        with at.client.websocket_connect("/r/ws"):
            pass
    with pytest.raises(WebSocketDisconnect), at.client.websocket_connect("/r/ws"):
        pass


def test_each_message_of_a_websocket_counts():
    """The key says for which client; connections have a count of their own, and so has each limit."""
    at = site()
    per_key = {"key": lambda websocket: websocket.query_params["who"]}
    limits = [limit("9/hour"), limit("2/hour", messages=True, **per_key), limit("3/hour", messages=True)]
    at.app.websocket("/ws", dependencies=[Depends(each) for each in limits])(echo)

    def say(who: str, *words: str) -> list[str]:
        said = []
        with at.client.websocket_connect(f"/ws?who={who}") as websocket:
            try:
                for word in words:
                    websocket.send_text(word)
                    said.append(websocket.receive_text())
            except WebSocketDisconnect as over:
                said.append(str(over.code))
        return said

    assert say("ann", "1", "2", "3") == ["1", "2", "1008"]
    assert say("bob", "1", "2") == ["1", "1008"]  # three messages in all, and those of a refused one are given back
