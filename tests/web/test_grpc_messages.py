"""Messages of gRPC streams, each counted."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from itertools import repeat
from typing import Any

import pytest

from tests.support.grpc_servers import (
    AsyncEcho,
    Echo,
    ReadingEcho,
    every_server,
    serving,
)

pytest.importorskip("grpc")
from grpc import StatusCode

from headgate.web.grpc import limited

pytestmark = pytest.mark.engineless


class Counting(Echo):
    """Streams whose messages are counted."""

    @limited("3/minute", key=lambda rpc: rpc.message[:1], messages=True)
    def Collect(self, requests: Any, context: Any) -> bytes:
        return super().Collect(requests, context)

    @limited("3/minute", messages=True, key=lambda rpc: rpc.message[:1])
    def Chat(self, requests: Any, context: Any) -> Iterator[bytes]:
        return super().Chat(requests, context)


class AsyncCounting(AsyncEcho):
    """The same in an event loop, one of them by reading."""

    @limited("3/minute", key=lambda rpc: rpc.message[:1], messages=True)
    async def Collect(self, requests: Any, context: Any) -> bytes:  # type: ignore[override]
        return await super().Collect(requests, context)

    @limited("3/minute", key=lambda rpc: rpc.message[:1], messages=True)
    async def Chat(self, requests: Any, context: Any) -> None:  # type: ignore[override]
        await ReadingEcho.Chat(self, requests, context)


@pytest.mark.parametrize("method", ["Collect", "Chat"])
@pytest.mark.parametrize("by", ["policy", "method"])
@every_server
def test_a_stream_that_sends_too_many_messages_is_ended(kind, by, method):
    """With RESOURCE_EXHAUSTED and the wait; what came before it was handled. One message more is one too many."""
    rule = {"match": {"method": "MESSAGE"}, "key": ["ip", "path"], "limits": "3/minute"}
    made = {"threads": Counting, "threads of a loop": Counting}.get(kind, AsyncCounting)
    echo = made() if by == "method" else None
    with serving(kind, {"rules": [rule]} if by == "policy" else None, echo=echo, default="9/minute") as server:
        passed = server.ask(method, b"a", b"a")
        assert (passed.code, b"".join(passed.responses).count(b"a")) == (StatusCode.OK, 2)
        refused = server.ask(method, *repeat(b"a", 5))
        if (kind, method, refused.code) == ("threads of a loop", "Chat", StatusCode.DEADLINE_EXCEEDED):
            # grpc.aio cannot end a call while it sends a response of a handler's thread: the client's deadline does.
            assert server.echo.calls == [b"a"] * 3
            return
        assert refused.code is StatusCode.RESOURCE_EXHAUSTED
        assert refused.trailing["grpc-retry-pushback-ms"] == "20000"
        assert refused.responses == ([b"a"] if method == "Chat" else [])
        assert server.echo.calls == [b"a"] * 3
        assert server.codes(1) == ["OK"]
        if by == "method":
            assert server.codes(1, method, b"b") == ["OK"]


def test_a_handler_that_swallows_the_end_of_its_stream_ends_all_the_same():
    """Its answer does not change the code."""

    class Swallowing(Echo):
        def Collect(self, requests: Any, context: Any) -> bytes:
            with contextlib.suppress(Exception):
                return super().Collect(requests, context)
            return b"fine"

    rule = {"match": {"method": "MESSAGE"}, "key": "ip", "limits": "1/minute"}
    with serving(policy={"rules": [rule]}, echo=Swallowing()) as server:
        assert server.ask("Collect", b"a", b"a").code is StatusCode.RESOURCE_EXHAUSTED
