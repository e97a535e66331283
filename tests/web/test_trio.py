"""Apps on trio: rules in memory work; what has to be awaited fails each request with a clear error, and passes none."""

from __future__ import annotations

from typing import Any

import hypercorn.trio
import pytest
import trio
from hypercorn.config import Config
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from headgate import InvalidCall
from headgate.web.asgi import RateLimitMiddleware
from headgate.web.starlette import RateLimits, limited
from tests.support.edges import still
from tests.support.servers import free_port

pytestmark = pytest.mark.engineless

SAYS = "trio is not supported.*Run the app on asyncio"
DELAYED = {"name": "api", "key": "ip", "limits": "1/minute burst 1", "act": {"delay": {"hold": 3}}}


def told(request: Request) -> PlainTextResponse:
    return PlainTextResponse(str(request.state.rate_limit.remaining))


def site(rule: dict[str, Any], endpoint: Any = told, **options: Any) -> TestClient:
    """An app on anyio's trio backend."""
    app = Starlette(routes=[Route("/", endpoint)])
    RateLimits(app, {"rules": [{"name": "api", "key": "ip", **rule}]}, **options)
    return TestClient(app, backend="trio")


@pytest.mark.parametrize("rule", [{"limits": "2/hour"}, {"limits": "2/hour", "count": {"when": {"status": 200}}}])
def test_rules_in_memory_work(rule):
    """Decisions, header fields, what endpoints see, and the end of the app."""
    with site(rule, store=still()) as client:
        answers = [client.get("/") for _ in range(3)]
    assert [(each.status_code, each.text) for each in answers[:2]] == [(200, "1"), (200, "0")]
    assert answers[2].status_code == 429


def test_permits_and_endpoint_limits_in_memory_work():
    """A limit in flight is released at the end of its request, also on trio."""

    @limited("2/hour")
    async def read(request: Request) -> PlainTextResponse:
        return told(request)

    with site({"limits": "1 in flight"}, read, store=still()) as client:
        assert [client.get("/").status_code for _ in range(3)] == [200, 200, 429]


@pytest.mark.parametrize("extra", [{}, {"on_error": "allow"}, {"on_error": "deny"}, {"on_error": "local"}])
@pytest.mark.parametrize("act", ["deny", "observe", "mark"])
def test_a_store_that_is_awaited_fails_each_request(act, extra, server):
    """Whatever `on_error` says: nothing can be counted, and a yes would go unnoticed."""
    client = site({"limits": "2/hour", "act": act, **extra}, store=server.url)
    for _ in range(2):
        with pytest.raises(InvalidCall, match=SAYS):
            client.get("/")


def test_a_delay_fails_the_request_and_charges_nothing():
    """A rule that would hold the request back raises, and gives back what it charged."""
    app = RateLimitMiddleware(PlainTextResponse("ok"), {"rules": [DELAYED]}, store=still())
    client = TestClient(app, backend="trio")
    assert client.get("/").status_code == 200
    left = app.peek("api", "testclient").reset_after
    with pytest.raises(InvalidCall, match=SAYS):
        client.get("/")
    assert app.peek("api", "testclient").reset_after == left


def test_a_real_server_on_trio_serves_limits_in_memory():
    """Hypercorn's trio worker, with a lifespan that closes the stores."""
    app = Starlette(routes=[Route("/", told)])
    RateLimits(app, {"rules": [{"key": "ip", "limits": "2/hour"}]}, store=still())
    port, codes = free_port(), list[bytes]()

    async def ask() -> None:
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        async with stream:
            await stream.send_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            codes.append((await stream.receive_some())[9:12])

    async def serve() -> None:
        config, done = Config(), trio.Event()
        config.bind, config.errorlog = [f"127.0.0.1:{port}"], None
        with trio.fail_after(30):
            async with trio.open_nursery() as nursery:
                await nursery.start(
                    lambda task_status: hypercorn.trio.serve(
                        app, config, shutdown_trigger=done.wait, task_status=task_status
                    )
                )
                for _ in range(3):
                    await ask()
                done.set()

    trio.run(serve)
    assert codes == [b"200", b"200", b"429"]
