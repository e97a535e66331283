"""ASGI beyond requests: websockets, their messages, the lifespan, and a policy that is exchanged."""

from __future__ import annotations

import asyncio
import os
from typing import Any, ClassVar

import pytest

from headgate import MemoryStore
from headgate.web.asgi import RateLimitMiddleware
from tests.support.edges import PEER, asgi, exchange, get, plain, scope, still
from tests.support.stores import Slow

SOCKET = {"type": "websocket", "path": "/chat", "query_string": b"", "headers": [], "client": (PEER, 4711)}
CONNECT = {"type": "websocket.connect"}
SAYS = {"type": "websocket.receive", "text": "hi"}
LEAVES = {"type": "websocket.disconnect", "code": 1000}
RULE = {"name": "api", "key": "ip", "limits": "2/minute"}


async def chat(given: Any, receive: Any, send: Any) -> None:
    """Accept, and repeat what is said until the end."""
    assert (await receive())["type"] == "websocket.connect"
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] == "websocket.receive":
        await send({"type": "websocket.send", "text": message["text"]})


def limited(*rules: dict[str, Any], app: Any = chat, **more: Any) -> RateLimitMiddleware:
    store = still()
    return RateLimitMiddleware(app, {"rules": [{**RULE, **rule} for rule in rules], **more}, store=store)


def talk(app: Any, *messages: dict[str, Any], **more: Any) -> list[str]:
    """What a websocket is sent: the kinds of the messages."""
    sent = asyncio.run(exchange(app, {**SOCKET, **more}, CONNECT, *messages, LEAVES))
    return [message["type"].removeprefix("websocket.") for message in sent]


def test_a_websocket_counts_once_when_it_connects():
    """Two connections a minute; what is said in them is not counted."""
    app = limited({})
    assert talk(app, *[SAYS] * 5) == ["accept"] + ["send"] * 5
    assert [talk(app), talk(app)] == [["accept"], ["close"]]


def test_rules_may_be_for_websockets_alone():
    """WEBSOCKET is a method."""
    app = limited({"match": {"method": "WEBSOCKET"}, "limits": "1/minute"})
    assert [talk(app), talk(app)] == [["accept"], ["close"]]


def test_a_refused_websocket_is_closed_before_it_is_accepted():
    """Where the server can send nothing better: the code for a breach of policy."""
    app = limited({"limits": "1/minute"})
    talk(app)
    assert asyncio.run(exchange(app, dict(SOCKET), CONNECT)) == [{"type": "websocket.close", "code": 1008}]


def test_a_refused_websocket_is_an_answer_in_http_where_the_server_can():
    """Status, headers and body of any other refusal."""
    app = limited({"limits": "1/minute"})
    talk(app)
    able = {**SOCKET, "extensions": {"websocket.http.response": {}}}
    start, body = asyncio.run(exchange(app, able, CONNECT))
    assert (start["type"], start["status"]) == ("websocket.http.response.start", 429)
    assert dict(start["headers"])[b"retry-after"] == b"60"
    assert (body["type"], body.get("more_body", False)) == ("websocket.http.response.body", False)
    assert dict(start["headers"])[b"content-length"] == str(len(body["body"])).encode()


def test_messages_are_counted_where_a_rule_says_so():
    """Two messages a minute: the third closes the connection, and the app is told that it is over."""
    app = limited({"match": {"method": "MESSAGE"}})
    sent = asyncio.run(exchange(app, dict(SOCKET), CONNECT, *[SAYS] * 5, LEAVES))
    assert [message["type"] for message in sent] == [
        "websocket.accept", "websocket.send", "websocket.send", "websocket.close",
    ]  # fmt: skip
    assert sent[-1] == {"type": "websocket.close", "code": 1008, "reason": "rate limited"}
    assert talk(app, SAYS) == ["accept", "close"]


def test_a_rule_that_does_not_name_messages_does_not_count_them():
    """A rule for everything counts the connection, also where another rule counts what is said in it."""
    app = limited(
        {"name": "all", "limits": "3/minute"}, {"name": "said", "match": {"method": "MESSAGE"}, "limits": "9/minute"}
    )
    assert talk(app, *[SAYS] * 5) == ["accept"] + ["send"] * 5


def test_messages_are_counted_wherever_the_rule_names_them():
    """A rule may name them within `any`."""
    app = limited({"match": {"any": [{"method": "MESSAGE"}]}, "limits": "1/minute"})
    assert talk(app, SAYS, SAYS) == ["accept", "send", "close"]


class Closing(MemoryStore):
    """A store that says when it is closed, by the number of keys it is for."""

    closed: ClassVar[list[int | None]] = []

    def close(self) -> None:
        self.closed.append(self.max_keys)


async def lives(given: Any, receive: Any, send: Any) -> None:
    while (message := await receive())["type"] != "lifespan.shutdown":
        await send({"type": f"{message['type']}.complete"})
    await send({"type": "lifespan.shutdown.complete"})


async def knows_none(given: Any, receive: Any, send: Any) -> None:
    raise ValueError("only HTTP")


async def ignores_it(given: Any, receive: Any, send: Any) -> None:
    return


@pytest.mark.parametrize("inside", [lives, knows_none, ignores_it])
@pytest.mark.parametrize("ours", [True, False])
def test_the_lifespan_closes_the_stores_that_were_opened_here(monkeypatch, ours, inside):
    """Before the end is announced, also for an app that knows no lifespan; a store that the app brought stays open."""
    monkeypatch.setattr("headgate.stores.MemoryStore", Closing)
    monkeypatch.setattr(Closing, "closed", [])
    store = "memory://?max_keys=1" if ours else Closing(max_keys=1)
    app = RateLimitMiddleware(inside, {"rules": [RULE], "stores": {"near": "memory://?max_keys=2"}}, store=store)
    seen: list[tuple[str, list[int | None]]] = []

    async def run() -> None:
        waiting = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]

        async def receive() -> Any:
            return waiting.pop(0)

        async def send(message: Any) -> None:
            seen.append((message["type"], sorted(each or 0 for each in Closing.closed)))

        await app({"type": "lifespan"}, receive, send)

    asyncio.run(run())
    assert seen == [("lifespan.startup.complete", []), ("lifespan.shutdown.complete", [1, 2] if ours else [2])]


def test_an_app_whose_startup_fails_fails_the_startup():
    """An error after the app has begun its lifespan is raised, as a server expects it."""

    async def fails(given: Any, receive: Any, send: Any) -> None:
        await receive()
        raise ValueError("no database")

    async def receive() -> Any:
        return {"type": "lifespan.startup"}

    with pytest.raises(ValueError, match="no database"):
        asyncio.run(RateLimitMiddleware(fails, {"rules": [RULE]})({"type": "lifespan"}, receive, receive))


def write(file: Any, text: str) -> None:
    """Exchange a file as deployments do, at once."""
    (file.parent / "new").write_text(text)
    os.replace(file.parent / "new", file)


def policy(limits: str, more: str = "") -> str:
    return f"rules: [{{name: api, key: ip, limits: {limits}}}]\n{more}"


def test_a_store_that_moved_is_opened_where_it_is_now(tmp_path):
    """The same name with another URL is another store."""
    file = tmp_path / "policy.yaml"
    rule = "rules: [{name: api, key: ip, limits: 1/minute, store: far}]\n"
    write(file, f"{rule}stores: {{far: 'memory://'}}\n")
    app = RateLimitMiddleware(plain, file)
    assert [asgi(app).status for _ in range(2)] == [200, 429]
    write(file, f"{rule}stores: {{far: 'memory://?max_keys=10'}}\n")
    assert app.reload() is True
    assert [asgi(app).status for _ in range(2)] == [200, 429]


def test_a_request_is_answered_wholly_by_the_policy_it_came_under(tmp_path):
    """Exchanged while the store is asked: limits and style of headers are still the old ones."""

    class Slowly(Slow):
        async def asked(self) -> None:
            await asyncio.sleep(0.01)

    file = tmp_path / "policy.yaml"
    write(file, policy("9/minute", "headers: draft-11"))

    async def run() -> list[set[str]]:
        app = RateLimitMiddleware(plain, file, store=Slowly(MemoryStore()))
        first = asyncio.create_task(get(app))
        await asyncio.sleep(0)
        write(file, policy("8/minute", "headers: x-ratelimit"))
        assert app.reload()
        return [set((await first).fields), set((await get(app)).fields)]

    old, new = asyncio.run(run())
    assert old == {"ratelimit-policy", "ratelimit"}
    assert new == {"x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"}


def test_other_kinds_of_connections_pass():
    """A connection that is neither HTTP nor a websocket is the app's."""
    seen: list[Any] = []

    async def app(given: Any, receive: Any, send: Any) -> None:
        seen.append(given["type"])

    for _ in range(3):
        asyncio.run(exchange(limited({"limits": "1/minute"}, app=app), {**scope(), "type": "other"}))
    assert seen == ["other"] * 3
