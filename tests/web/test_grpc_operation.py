"""gRPC servers in operation: bans, dry runs, limits that are off, marked calls, and refusals that an app makes."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.web.grpc import Rpc
from headgate.web.refusal import Refusal
from tests.support.grpc_servers import TWO, AsyncEcho, Echo, ReadingEcho, every_server, serving

pytestmark = pytest.mark.engineless

PEER = "127.0.0.1"
REFUSED = "RESOURCE_EXHAUSTED"


@every_server
def test_a_client_is_banned_and_unbanned(kind):
    """By the methods of the interceptor; a banned client is told the wait, and is charged nothing."""
    with serving(kind, TWO) as server:
        server.interceptor.ban("api", PEER, "1h")
        refused = server.ask()
        assert (refused.code.name, refused.trailing["grpc-retry-pushback-ms"]) == (REFUSED, "3600000")
        server.interceptor.unban("api", PEER)
        assert server.codes(3) == ["OK", "OK", REFUSED]


@every_server
@pytest.mark.parametrize(("mode", "enabled"), [("observe", True), ("off", True), ("enforce", False)])
def test_a_server_that_refuses_no_call(kind, mode, enabled):
    """A dry run of the whole policy, one that is off, and a server without limits; no field tells of a limit."""
    with serving(kind, {**TWO, "mode": mode}, enabled=enabled) as server:
        assert server.codes(4) == ["OK"] * 4
        assert server.ask().trailing == {}
        assert server.codes(1, "Unary", b"settle 3") == ["OK"]


def seen(context: Any) -> bytes:
    """What a handler sees of the decision about its call."""
    rate_limit = context.rate_limit
    return repr((bool(rate_limit), rate_limit.marks, rate_limit.as_dict()["remaining"])).encode()


class Seeing(Echo):
    """A service that answers with the decision about the call."""

    def Unary(self, request: bytes, context: Any) -> bytes:
        return seen(context)


class AsyncSeeing(AsyncEcho):
    """The same in an event loop."""

    async def Unary(self, request: bytes, context: Any) -> bytes:  # type: ignore[override]
        return seen(context)


class ReadingSeeing(AsyncSeeing, ReadingEcho):
    """The same by reading from the context."""


@every_server
def test_a_marked_call_passes_and_its_handler_knows(kind):
    """Over the limit of a rule with `act: mark`, the decision is False and names the rule."""
    rule = {"name": "busy", "key": "ip", "limits": "1/minute", "act": "mark"}
    echo = {"loop": AsyncSeeing, "reading": ReadingSeeing}.get(kind, Seeing)()
    with serving(kind, {"rules": [rule]}, echo=echo) as server:
        answers = [server.ask().responses for _ in range(2)]
    assert answers == [[b"(True, (), 0)"], [b"(False, ('busy',), 0)"]]


@every_server
def test_the_function_that_makes_a_refusal_sees_the_call(kind):
    """For a refusal by the policy, and by a limiter of the handler's own."""

    def body(reason: Any, decision: Any, seconds: Any, rpc: Rpc) -> str:
        return f"{rpc.method} in {seconds} s"

    with serving(kind, TWO, refusal=Refusal(body)) as server:
        own = server.ask("Unary", b"refuse")
        assert (own.code.name, own.details) == (REFUSED, "/echo.Echo/Unary in None s")
        assert [server.ask().details for _ in range(2)] == ["", "/echo.Echo/Unary in 30 s"]
