"""gRPC: limited methods whose marks no interceptor has read end their calls with an error."""

from __future__ import annotations

import functools
import logging
from collections.abc import AsyncIterator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

pytest.importorskip("grpc")
import grpc
import grpc.aio

from headgate.web.grpc import exempt, limited
from tests.support.grpc_servers import KINDS, AsyncEcho, Echo, Served, in_loop, serving

pytestmark = pytest.mark.engineless

TOLD = "has limits that nothing has asked about: add a RateLimitInterceptor to the interceptors of the server"


class Marked(Echo):
    """Every method has a limit."""

    @limited("1/minute")
    def Unary(self, request: bytes, context: Any) -> bytes:
        return super().Unary(request, context)

    @limited("1/minute")
    def Stream(self, request: bytes, context: Any) -> Iterator[bytes]:
        yield from super().Stream(request, context)

    @limited("1/minute", messages=True)
    def Collect(self, requests: Iterable[bytes], context: Any) -> bytes:
        return super().Collect(requests, context)

    @limited("1/minute")
    @limited("1/minute", messages=True)
    def Chat(self, requests: Iterable[bytes], context: Any) -> Iterator[bytes]:
        yield from super().Chat(requests, context)


class AsyncMarked(AsyncEcho):
    """Every method has a limit."""

    @limited("1/minute")
    async def Unary(self, request: bytes, context: Any) -> bytes:  # type: ignore[override]
        return await super().Unary(request, context)

    @limited("1/minute")
    async def Stream(self, request: bytes, context: Any) -> AsyncIterator[bytes]:  # type: ignore[override]
        async for each in super().Stream(request, context):
            yield each

    @limited("1/minute", messages=True)
    async def Collect(self, requests: Any, context: Any) -> bytes:  # type: ignore[override]
        return await super().Collect(requests, context)

    @limited("1/minute")
    async def Chat(self, requests: Any, context: Any) -> AsyncIterator[bytes]:  # type: ignore[override]
        async for each in super().Chat(requests, context):
            yield each


@pytest.mark.parametrize("echo", [Marked, AsyncMarked])
def test_a_server_without_the_interceptor_answers_with_an_error(echo, caplog):
    """The handler is not called; the log says what is missing."""
    caplog.set_level(logging.ERROR)
    made = echo()
    with ThreadPoolExecutor(4) as pool, in_loop(made, (), "127.0.0.1:0", pool) as port:
        target = f"127.0.0.1:{port}"
        with grpc.insecure_channel(target) as channel:
            server = Served(made, None, channel, target)
            assert [server.ask(method, b"hi").code.name for method in KINDS] == ["UNKNOWN"] * 4
    assert made.calls == []
    assert caplog.text.count(TOLD) >= 4


class Hiding(grpc.ServerInterceptor):
    """Wraps the handler, as interceptors do that trace calls."""

    def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        handler = continuation(handler_call_details)
        within = handler.unary_unary
        return grpc.unary_unary_rpc_method_handler(lambda request, context: within(request, context))


def test_marks_that_another_interceptor_hides_are_missed(caplog):
    """Listed after ours, it shows ours a handler without marks. The policy and the defaults are asked all the same."""
    caplog.set_level(logging.ERROR)
    with serving(echo=Marked(), after=(Hiding(),), default="9/minute") as server:
        assert server.ask("Unary", b"hi").code.name == "UNKNOWN"
    assert TOLD in caplog.text
    with serving(echo=Marked(), before=(Hiding(),)) as server:
        assert server.codes(2) == ["OK", "RESOURCE_EXHAUSTED"]


def test_decorators_that_keep_the_marks_are_no_mistake():
    """The method finds that its marks were read, by the context, which decorators may wrap too."""

    class Traced:
        def __init__(self, context: Any) -> None:
            self._context = context

        def __getattr__(self, name: str) -> Any:
            return getattr(self._context, name)

    def traced(method: Any) -> Any:
        @functools.wraps(method)
        def made(self: Any, request: Any, context: Any) -> Any:
            return method(self, request, Traced(context))

        return made

    class Decorated(Marked):
        Unary = traced(Marked.Unary)
        Stream = exempt(Marked.Stream)

    with serving(echo=Decorated(), default="1/minute") as server:
        assert server.codes(2) == ["OK", "RESOURCE_EXHAUSTED"]
        assert server.codes(3, "Stream") == ["OK"] * 3
