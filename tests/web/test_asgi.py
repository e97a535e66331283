"""ASGI: what passes is untouched, what is refused is told, and nothing of ours ever fails a request."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.web.asgi import RateLimitMiddleware
from tests.support.adapters.bare import AsgiSuite
from tests.support.edges import asgi, exchange, get, of_everything, read_answer, scope, still

START = {"type": "http.response.start", "status": 200, "headers": [(b"x-app", b"1")]}


async def hello(given: Any, receive: Any, send: Any) -> None:
    """200 and two words."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"x-app", b"1")]})
    await send({"type": "http.response.body", "body": b"hello ", "more_body": True})
    await send({"type": "http.response.body", "body": b"world"})


def limited(app: Any = hello, **fields: Any) -> RateLimitMiddleware:
    """An app behind one rule, two a minute, by a clock that stands still."""
    edge = {"user": fields.pop("user")} if "user" in fields else {}
    rule = {"name": "api", "key": "ip", "limits": "2/minute", **fields}
    return RateLimitMiddleware(app, {"rules": [rule]}, store=still(), **edge)


class TestSuite(AsgiSuite):
    """What every edge does, in front of an app that is a function."""


def test_a_stream_passes_piece_by_piece():
    """Each piece is sent when the app sends it, as it is; the request is read by the app alone."""
    order: list[str] = []

    async def echo(given: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        more = True
        while more:
            message = await receive()
            more = message["more_body"]
            await send({"type": "http.response.body", "body": message["body"], "more_body": more})
            order.append("app")

    async def run() -> list[dict[str, Any]]:
        pieces = [bytes([at]) * at for at in range(50)]
        messages = [{"type": "http.request", "body": piece, "more_body": at < 49} for at, piece in enumerate(pieces)]
        return await exchange(limited(echo, count={"when": {"status": 401}}), scope(), *messages)

    sent = asyncio.run(run())
    assert [message["body"] for message in sent[1:]] == [bytes([at]) * at for at in range(50)]
    assert [message["more_body"] for message in sent[1:]] == [True] * 49 + [False]


def test_where_no_rule_applies_the_app_gets_the_very_same_send():
    """Nothing is wrapped, nothing is copied."""
    seen: list[Any] = []

    async def app(given: Any, receive: Any, send: Any) -> None:
        seen.extend((given, receive, send))

    async def receive() -> Any: ...
    async def send(message: Any) -> None: ...

    made = scope()
    asyncio.run(limited(app, match={"path": "/other"})(made, receive, send))
    assert seen[0] is made and seen[1] is receive and seen[2] is send


def test_an_apps_own_message_is_not_changed():
    """An app may send the same message every time."""

    async def frugal(given: Any, receive: Any, send: Any) -> None:
        await send(START)
        await send({"type": "http.response.body", "body": b""})

    app = limited(frugal, limits="9/minute")
    assert [len(asgi(app).headers) for _ in range(3)] == [3, 3, 3]
    assert START["headers"] == [(b"x-app", b"1")]


@pytest.mark.parametrize("started", [False, True])
def test_an_exception_of_the_apps_is_the_apps(started):
    """It passes as it is; what was reserved for a 401 is given back when there was no answer."""

    async def broken(given: Any, receive: Any, send: Any) -> None:
        if started:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        raise LookupError("mine")

    app = limited(broken, count={"when": {"status": 401}})
    for _ in range(5):
        with pytest.raises(LookupError, match="mine"):
            asgi(app)


def test_a_client_that_goes_away_is_not_counted():
    """A cancelled request gives back what was reserved for its answer."""

    async def run() -> list[int]:
        async def slow(given: Any, receive: Any, send: Any) -> None:
            if given["path"] == "/slow":
                await asyncio.sleep(60)
            await hello(given, receive, send)

        app = limited(slow, count={"when": {"status": 200}})
        for _ in range(5):
            task = asyncio.create_task(get(app, "GET", "/slow"))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        return [(await get(app)).status for _ in range(3)]

    assert asyncio.run(run()) == [200, 200, 429]


def test_a_delay_holds_the_request_and_a_cancelled_one_leaves_the_queue():
    """Twenty a second: the third waits a tenth of a second; of a full queue, one that leaves makes room for one."""

    async def run() -> float:
        app = limited(limits="20/second", act={"delay": {"hold": 4}})
        loop = asyncio.get_running_loop()
        start = loop.time()
        tasks = [asyncio.create_task(get(app)) for _ in range(4)]
        await asyncio.sleep(0)
        tasks.pop().cancel()
        assert [(await task).status for task in tasks] == [200] * 3
        waited = loop.time() - start
        assert [(await get(app)).status for _ in range(2)] == [200, 429]
        return waited

    assert 0.1 <= asyncio.run(run()) < 5.0


class BaseUser:
    """As in Starlette: what a kind of user does not have raises NotImplementedError."""

    is_authenticated = True

    @property
    def identity(self) -> str:
        raise NotImplementedError


class SimpleUser(BaseUser):
    def __init__(self, username: str) -> None:
        self.username = self.display_name = username


class Anonymous(BaseUser):
    is_authenticated = False


def test_a_user_that_a_middleware_has_found_is_the_user():
    """Starlette's SimpleUser has no identity, and says so with an exception."""
    app = limited(key="user", missing="deny", limits="1/minute")
    asked = [asgi(app, user=SimpleUser(name)).status for name in ("ann", "ann", "bob")]
    assert asked == [200, 429, 200]
    assert asgi(app, user=Anonymous()).status == 403


TEXTS = st.text(st.characters(max_codepoint=255), max_size=40)
NAMES = st.sampled_from(
    ["host", "cookie", "accept", "x-forwarded-for", "forwarded", "x-key", "x-plan", "", "authorization"]
)


@settings(max_examples=300)
@given(
    path=st.text(max_size=40),
    method=st.sampled_from(["GET", "POST", "*", "é"]) | st.text(max_size=5),
    lines=st.lists(st.tuples(NAMES | TEXTS, TEXTS), max_size=6),
    query=st.binary(max_size=60),
    client=st.none() | st.tuples(TEXTS | st.just("10.0.0.1"), st.just(1)),
    limit=st.sampled_from([1, 1000]),
)
def test_no_request_is_ever_an_error_of_ours(path, method, lines, query, client, limit):
    """Whatever is sent: 200 or a refusal; one of what says two things at once does not change."""
    app = RateLimitMiddleware(hello, of_everything(limit), store=still(), trusted_proxies=["10.0.0.0/8"])
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in lines]
    made = {**scope(method, path), "headers": raw, "query_string": query, "client": client}
    statuses = [read_answer(asyncio.run(exchange(app, made))).status for _ in range(2)]
    assert statuses in ([200, 200], [200, 429], [400, 400])
