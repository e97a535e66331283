"""Requests without an address, as from a unix socket: one budget for all of them at every edge."""

from __future__ import annotations

import asyncio
import logging
import os
import tempfile
from typing import Any

import pytest
from aiohttp import web
from flask import Flask

from headgate import MemoryStore
from headgate.testing import ManualClock
from headgate.web.aiohttp import RateLimits as AiohttpLimits
from headgate.web.asgi import RateLimitMiddleware as Asgi
from headgate.web.flask import RateLimits as FlaskLimits
from headgate.web.wsgi import RateLimitMiddleware as Wsgi
from tests.support.django_site import site
from tests.support.edges import LATER, asgi, responder, wsgi
from tests.support.grpc_servers import serving

pytestmark = pytest.mark.engineless

RULE = {"key": "ip", "limits": "2/hour"}


def store() -> MemoryStore:
    """By a clock that stands still."""
    return MemoryStore(clock=ManualClock(LATER))


async def _hello(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


def _hello_wsgi(environ: Any, start_response: Any) -> list[bytes]:
    start_response("200 OK", [])
    return [b"hello"]


def by_asgi(**rule: Any) -> list[int]:
    app = Asgi(_hello, {"rules": [{**RULE, **rule}]}, store=store())
    return [asgi(app, client=peer).status for peer in (None, ("", 0), None, ("203.0.113.9", 1))]


def by_wsgi(**rule: Any) -> list[int]:
    app = Wsgi(_hello_wsgi, {"rules": [{**RULE, **rule}]}, store=store())
    return [wsgi(app, REMOTE_ADDR=peer).status for peer in ("", None, "", "203.0.113.9")]


def by_flask(**rule: Any) -> list[int]:
    app = Flask("here")
    FlaskLimits(app, {"rules": [{**RULE, **rule}]}, store=store())
    app.add_url_rule("/", "index", lambda: "hello")
    peers = ("", "", "", "203.0.113.9")
    return [app.test_client().get("/", environ_base={"REMOTE_ADDR": peer}).status_code for peer in peers]


def by_django(**rule: Any) -> list[int]:
    with site(policy={"rules": [{**RULE, **rule}]}) as client:
        return [client.get("/", REMOTE_ADDR=peer).status_code for peer in ("", "", "", "203.0.113.9")]


@pytest.mark.parametrize("ask", [by_asgi, by_wsgi, by_flask, by_django])
class TestEveryEdge:
    def test_they_share_one_budget_apart_from_every_address(self, ask):
        """By the short way and by the long way, which a function for the cost takes."""
        assert ask() == ask(cost=lambda view: 1) == [200, 200, 429, 200]

    def test_a_rule_may_refuse_them(self, ask):
        assert ask(missing="deny") == ask(missing="deny", cost=lambda view: 1) == [403, 403, 403, 200]

    def test_a_rule_may_leave_them_alone(self, ask):
        assert ask(missing="skip", limits="1/hour") == [200, 200, 200, 200]

    def test_a_store_that_must_answer_makes_no_difference(self, ask):
        """`on_error` is about stores: who is missing there is up to `missing`."""
        assert ask(on_error="allow") == ask(on_error="deny") == [200, 200, 429, 200]


def test_limits_at_endpoints_count_them_as_one():
    app = Flask("here")
    FlaskLimits(app, default="2/hour", store=store())
    app.add_url_rule("/", "index", lambda: "hello")
    found = [app.test_client().get("/", environ_base={"REMOTE_ADDR": ""}).status_code for _ in range(3)]
    assert found == [200, 200, 429]
    with site(default="2/hour") as client:
        assert [client.get("/", REMOTE_ADDR="").status_code for _ in range(3)] == [200, 200, 429]


@pytest.mark.parametrize("given", [{"policy": {"rules": [RULE]}}, {"default": "2/hour"}])
def test_clients_of_aiohttp_on_a_unix_socket_are_one(given):
    async def told() -> list[int]:
        app = web.Application()
        AiohttpLimits(app, store=store(), **given)
        app.router.add_get("/", _hello_aiohttp)
        runner = web.AppRunner(app)
        await runner.setup()
        with tempfile.TemporaryDirectory() as short:
            path = os.path.join(short, "s")
            await web.UnixSite(runner, path).start()
            found = [await _status_at(path) for _ in range(3)]
            await runner.cleanup()
        return found

    assert asyncio.run(told()) == [200, 200, 429]


async def _hello_aiohttp(request: web.Request) -> web.Response:
    return web.Response(text="hello")


async def _status_at(path: str) -> int:
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    status = int((await reader.readline()).split()[1])
    writer.close()
    await writer.wait_closed()
    return status


@pytest.mark.parametrize("kind", ["threads", "loop"])
@pytest.mark.parametrize("given", [{"policy": {"rules": [RULE]}}, {"default": "2/hour"}])
def test_callers_of_grpc_on_a_unix_socket_are_one(kind, given):
    with (
        tempfile.TemporaryDirectory() as short,
        serving(kind, at=f"unix:{os.path.join(short, 's')}", **given) as server,
    ):
        assert [server.ask().code.name for _ in range(3)] == ["OK", "OK", "RESOURCE_EXHAUSTED"]


@pytest.mark.parametrize("key", ["user", {"header": "x-key"}, {"claim": "sub"}, ["user", "ip"], lambda view: None])
def test_a_part_that_is_missing_beside_an_address_that_is_missing_is_counted(key):
    """By default; in a budget that nobody's value can be."""
    assert responder({"key": key}).kinds(3, peer=None) == ["pass", "pass", "deny"]
    assert responder({"key": key, "missing": "deny"}).ask(peer=None).status == (401 if isinstance(key, dict) else 403)
    assert responder({"key": key, "missing": "skip"}).kinds(3, peer=None) == ["pass"] * 3


def test_no_value_looks_like_nobody():
    judged = responder({"key": "user"})
    assert judged.kinds(3, peer=None) == ["pass", "pass", "deny"]
    assert [judged.ask(user=name).kind for name in ("\\m", "\\\\m", "")] == ["pass"] * 3


@pytest.mark.parametrize(
    ("trusted", "advice"),
    [
        ((), "trusted_proxies=['unix']"),
        (["10.0.0.0/8"], "add 'unix' to trusted_proxies"),
        (["unix"], "x-forwarded-for"),
    ],
)
def test_the_log_says_once_what_to_set(trusted, advice, caplog, monkeypatch):
    monkeypatch.setattr("headgate.policy.no_address._said", False)
    app = Asgi(_hello, {"rules": [RULE]}, trusted_proxies=trusted)
    with caplog.at_level(logging.WARNING, "headgate"):
        for _ in range(1100):
            asgi_once(app)
    [said] = [each.getMessage() for each in caplog.records]
    assert "without an address" in said and "counted as one client" in said and advice in said


def test_the_log_says_nothing_where_no_rule_needs_an_address(caplog, monkeypatch):
    monkeypatch.setattr("headgate.policy.no_address._said", False)
    app = Asgi(_hello, {"rules": [{**RULE, "key": "everyone"}]})
    with caplog.at_level(logging.WARNING, "headgate"):
        asgi_once(app)
    assert not caplog.records


def asgi_once(app: Any) -> None:
    """One request without an address, in no event loop: nothing is awaited there."""
    scope: dict[str, Any] = {"type": "http", "method": "GET", "path": "/", "headers": [], "client": None}
    call = app(scope, _never, _nowhere)
    with pytest.raises(StopIteration):
        call.send(None)


async def _never() -> Any:
    raise AssertionError


async def _nowhere(message: Any) -> None:
    """Nobody listens."""
