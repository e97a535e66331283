"""gRPC: calls whose `abort` returns, as it does in the threads of an event loop before grpcio 1.85."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any

import pytest

pytest.importorskip("grpc")
import grpc
import grpc.aio
from grpc import StatusCode

from tests.support.grpc_servers import KINDS, TWO, Echo, serving

pytestmark = pytest.mark.engineless


class Returning(grpc.aio.ServerInterceptor):
    """Hands such a context to all behind it."""

    async def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        handler = await continuation(handler_call_details)
        kind = KINDS[handler_call_details.method.rpartition("/")[2]]
        behavior = getattr(handler, kind)
        make = getattr(grpc, f"{kind}_rpc_method_handler")
        return make(
            lambda message, context: behavior(message, ReturningContext(context)),
            handler.request_deserializer,
            handler.response_serializer,
        )


class ReturningContext:
    """A context whose `abort` ends the call for the client only."""

    def __init__(self, context: Any) -> None:
        self._context = context

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def abort(self, code: StatusCode, details: str = "") -> None:
        with contextlib.suppress(grpc.aio.AbortError):
            self._context.abort(code, details)


class Noting(Echo):
    """Notes a call before its first message, too."""

    def Collect(self, requests: Iterable[bytes], context: Any) -> bytes:
        self.calls.append(b"hi")
        return b"".join(requests)


@pytest.mark.parametrize("method", KINDS)
def test_no_handler_runs_for_a_refused_call(method):
    """The client is told of the refusal, and the handler never hears of the call."""
    with serving("threads of a loop", TWO, echo=Noting(), before=[Returning()]) as server:
        assert server.codes(4, method, b"hi") == ["OK", "OK", "RESOURCE_EXHAUSTED", "RESOURCE_EXHAUSTED"]
    assert server.echo.calls == [b"hi"] * 2  # the server has waited for its threads
