"""gRPC: what handlers do with a call, how it ends, and what is counted by that; on real servers."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any, NamedTuple

import pytest

pytest.importorskip("grpc")
import grpc
from grpc import StatusCode

from headgate.web.grpc import limited
from tests.support.edges import still
from tests.support.grpc_servers import (
    KINDS,
    SERVERS,
    TWO,
    AsyncEcho,
    Echo,
    Served,
    each_sort,
    ended,
    every_server,
    serving,
)
from tests.support.homes import eventually
from tests.support.stores import Slow

pytestmark = pytest.mark.engineless

WRONG = {"when": {"status": [401, 403]}}


@every_server
@pytest.mark.parametrize("method", KINDS)
def test_only_wrong_passwords_count(kind, method, caplog):
    """The code decides, whether it was set or the call aborted; an error without a code counts as 500."""
    caplog.set_level(logging.CRITICAL)
    policy = {"rules": [{"key": "ip", "limits": "2/minute", "count": WRONG}]}
    with serving(kind, policy) as server:
        for message, code in ((b"hi", "OK"), (b"abort NOT_FOUND", "NOT_FOUND"), (b"raise", "UNKNOWN")):
            assert server.codes(3, method, message) == [code] * 3
        assert server.codes(1, method, b"abort UNAUTHENTICATED") == ["UNAUTHENTICATED"]
        assert server.codes(1, method, b"code PERMISSION_DENIED") == ["PERMISSION_DENIED"]
        assert server.codes(1, method, b"hi") == ["RESOURCE_EXHAUSTED"]


@every_server
@pytest.mark.parametrize("method", KINDS)
def test_a_call_that_is_aborted_is_counted_before_the_client_knows(kind, method):
    """The fields show what is left at that time; a refusal by the handler's own limiter keeps its wait."""
    policy = {"rules": [{"name": "api", "key": "ip", "limits": "2/minute", "count": WRONG}]}
    with serving(kind, policy) as server:
        told = [server.ask(method, message).trailing for message in (b"abort NOT_FOUND", b"abort UNAUTHENTICATED")]
        assert [fields["ratelimit"] for fields in told] == ['"api";r=2;t=0', '"api";r=1;t=30']
        assert server.ask(method, b"refuse").trailing["grpc-retry-pushback-ms"] == "-1"
        assert server.codes(1, method, b"hi") == ["OK"]


HTTP = {
    "OK": 200, "CANCELLED": 499, "UNKNOWN": 500, "INVALID_ARGUMENT": 400, "DEADLINE_EXCEEDED": 504, "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409, "PERMISSION_DENIED": 403, "RESOURCE_EXHAUSTED": 429, "FAILED_PRECONDITION": 400,
    "ABORTED": 409, "OUT_OF_RANGE": 400, "UNIMPLEMENTED": 501, "INTERNAL": 500, "UNAVAILABLE": 503, "DATA_LOSS": 500,
    "UNAUTHENTICATED": 401,
}  # fmt: skip


def test_every_code_has_its_status():
    """A call of each code is charged what its status costs."""
    assert HTTP.keys() == {code.name for code in StatusCode}
    costs = {str(status): status for status in HTTP.values()}
    rule = {"name": "api", "key": {"header": "x-user"}, "limits": "1000/minute"}
    with serving(policy={"rules": [{**rule, "cost": {"default": 1000, "after": {"status": costs}}}]}) as server:
        for name, status in HTTP.items():
            assert server.ask("Unary", f"code {name}".encode(), metadata=[("x-user", name)]).code.name == name
            wait = int(server.ask("Unary", metadata=[("x-user", name)]).trailing["grpc-retry-pushback-ms"])
            assert wait == status * 60


@every_server
@pytest.mark.parametrize("method", KINDS)
def test_a_call_costs_what_its_trailing_metadata_says(kind, method):
    """Which the client gets too, beside what is left."""
    rule = {"name": "api", "key": "ip", "limits": "10/minute", "cost": {"default": 10, "after": {"header": "x-cost"}}}
    with serving(kind, {"rules": [rule]}) as server:
        first = server.ask(method, b"cost 3")
        assert first.trailing == {
            "x-cost": "3", "ratelimit-policy": '"api";q=10;w=60', "ratelimit": '"api";r=7;t=18',
        }  # fmt: skip
        assert server.ask(method, b"cost 3").trailing["grpc-retry-pushback-ms"] == "18000"


@each_sort
def test_ten_logins_at_once_at_a_limit_of_two(kind):
    """Two reach the handler, whatever it will answer; when they were good, two more may."""
    policy = {"rules": [{"key": "ip", "limits": "2/minute", "count": WRONG}]}
    with serving(kind, policy) as server:
        calls = [server.begin("Unary", b"wait") for _ in range(10)]
        assert server.echo.inside.acquire(timeout=10) and server.echo.inside.acquire(timeout=10)
        eventually(lambda: sum(call.done() for call in calls) >= 8)
        assert [ended(call).code.name for call in calls if call.done()] == ["RESOURCE_EXHAUSTED"] * 8
        server.echo.gate.set()
        assert sorted(ended(call).code.name for call in calls) == ["OK"] * 2 + ["RESOURCE_EXHAUSTED"] * 8
        assert server.codes(2) == ["OK", "OK"]


def ask_until(code: str, server: Served, *request: Any) -> None:
    """The same call until it ends so."""
    eventually(lambda: server.ask(*request).code.name == code)


class Endless(Echo):
    """Streams until nobody listens."""

    def Stream(self, request: bytes, context: Any) -> Iterator[bytes]:
        try:
            while True:
                yield request
        finally:
            self.inside.release()


class AsyncEndless(AsyncEcho):
    """The same in an event loop."""

    async def Stream(self, request: bytes, context: Any) -> AsyncIterator[bytes]:  # type: ignore[override]
        try:
            while True:
                yield request
        finally:
            self.inside.release()


@pytest.mark.parametrize("echo", [Echo, AsyncEcho, Endless, AsyncEndless])
def test_a_client_that_goes_away_is_not_counted(echo):
    """A stream that was cancelled, while the handler worked or while it sent, gives back what was reserved for it."""
    policy = {"rules": [{"key": "ip", "limits": "1/minute", "count": {"when": {"status": 200}}}]}
    with serving("loop" if issubclass(echo, AsyncEcho) else "threads", policy, echo=echo()) as server:
        for _ in range(2):
            call = server.begin("Stream", b"wait")
            if "Endless" in echo.__name__:
                assert next(call) == b"wait"
            else:
                assert server.echo.inside.acquire(timeout=10)
            call.cancel()
            ask_until("NOT_FOUND", server, "Unary", b"abort NOT_FOUND")
            if "Endless" in echo.__name__:
                assert server.echo.inside.acquire(timeout=10)
        assert server.codes(2) == ["OK", "RESOURCE_EXHAUSTED"]


@every_server
@pytest.mark.parametrize("method", ["Collect", "Chat"])
def test_a_stream_whose_client_goes_away_has_not_failed(kind, method):
    """The handler may be told so by an error from its messages."""
    policy = {"rules": [{"key": "ip", "limits": "1/minute", "count": {"when": {"status": 500}}}]}
    gone = threading.Event()

    def messages() -> Iterator[bytes]:
        yield b"first"
        gone.wait(10)

    with serving(kind, policy) as server:
        call = server.begin(method, messages())
        eventually(lambda: server.echo.calls)
        call.cancel()
        gone.set()
        ask_until("OK", server, "Unary")


@each_sort
def test_who_goes_away_while_held_is_not_handled(kind):
    """The place is for the next: the queue has room for one call at work and one that waits."""
    rule = {"key": "ip", "limits": "5/second", "act": {"delay": {"hold": 2}}}
    entered: list[str] = []
    with serving(kind, {"rules": [rule]}, plan=lambda view: entered.append(view.path)) as server:
        assert server.codes(1, "Unary", b"first") == ["OK"]
        call = server.begin("Unary", b"gone")
        eventually(lambda: len(entered) >= 2)
        call.cancel()
        ask_until("OK", server, "Unary", b"next")
        assert server.echo.calls == [b"first", b"next"]


class Held(Slow):
    """A store that gives back when it is told to."""

    def __init__(self) -> None:
        super().__init__(still())
        self.asked_back, self.told = threading.Event(), threading.Event()

    async def given(self) -> None:
        self.asked_back.set()
        while not self.told.is_set():
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("method", KINDS)
def test_a_call_that_is_cancelled_while_it_is_counted_is_counted(method):
    """The outcome of the call is known: nothing stays reserved."""
    store = Held()
    with serving("loop", {"rules": [{"key": "ip", "limits": "1/minute", "count": WRONG}]}, store=store) as server:
        call = server.begin(method, b"hi")
        assert store.asked_back.wait(10)
        call.cancel()
        assert server.codes(1) == ["RESOURCE_EXHAUSTED"], "which comes after the cancellation, on the same connection"
        store.told.set()
        ask_until("OK", server, "Unary")


@every_server
def test_a_function_of_a_limit_that_fails_fails_the_call_and_is_counted_so(kind):
    """As an error of the handler is: what the policy had reserved for wrong passwords is given back."""
    echo: Any = SERVERS[kind]()
    echo.Unary = limited("5/minute", key=lambda rpc: {}[rpc.message])(echo.Unary)
    with serving(kind, {"rules": [{"key": "ip", "limits": "1/minute", "count": WRONG}]}, echo=echo) as server:
        assert server.codes(3, "Unary", b"hi") == ["UNKNOWN"] * 3
        assert server.codes(1, "Collect", b"abort UNAUTHENTICATED") == ["UNAUTHENTICATED"]


class Curious(Echo):
    """Uses its context for everything."""

    def Unary(self, request: bytes, context: Any) -> bytes:
        assert context.is_active() and context.peer().startswith("ipv4:127.0.0.1:")
        context.set_trailing_metadata(None)
        context.set_trailing_metadata((("x-own", "1"),))
        assert context.trailing_metadata() == (("x-own", "1"),)
        context.set_code(StatusCode.INTERNAL)
        assert context.code() is StatusCode.INTERNAL
        context.set_details("details")
        return b""

    def Stream(self, request: bytes, context: Any) -> Iterator[bytes]:
        class Status(NamedTuple):
            code: StatusCode
            details: str
            trailing_metadata: Any

        yield b"one"
        context.abort_with_status(Status(StatusCode.INTERNAL, "details", (("x-own", "1"),)))


class AsyncCurious(AsyncEcho):
    """The same in an event loop."""

    async def Unary(self, request: bytes, context: Any) -> bytes:  # type: ignore[override]
        context.set_trailing_metadata((("x-own", "1"),))
        await context.abort(StatusCode.INTERNAL, "details")
        return b""

    async def Stream(self, request: bytes, context: Any) -> AsyncIterator[bytes]:  # type: ignore[override]
        yield b"one"
        context.set_trailing_metadata((("x-own", "0"),))
        await context.abort(StatusCode.INTERNAL, "details", (("x-own", "1"),))


@each_sort
@pytest.mark.parametrize("method", ["Unary", "Stream"])
def test_what_a_handler_sets_arrives_beside_what_is_left(kind, method):
    """The handler may also abort, and with metadata for that."""
    with serving(kind, TWO, echo=Curious() if kind == "threads" else AsyncCurious()) as server:
        answer = server.ask(method)
        assert (answer.code, answer.details) == (StatusCode.INTERNAL, "details")
        assert answer.trailing == {
            "x-own": "1", "ratelimit-policy": '"api";q=2;w=60', "ratelimit": '"api";r=1;t=30',
        }  # fmt: skip


class Tracing(grpc.ServerInterceptor):
    """An interceptor before ours."""

    def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        handler = continuation(handler_call_details)

        def traced(request: Any, context: Any) -> Any:
            context.set_trailing_metadata((("x-trace", "7"),))
            return handler.unary_unary(request, context)

        return grpc.unary_unary_rpc_method_handler(traced, None, handler.response_serializer)


def test_metadata_of_other_interceptors_stays():
    """An admission and a refusal both keep the metadata that another interceptor has set."""
    with serving(default="1/minute", before=[Tracing()]) as server:
        passed, refused = server.ask(), server.ask()
        assert passed.trailing["x-trace"] == refused.trailing["x-trace"] == "7"
        assert (passed.code, refused.code) == (StatusCode.OK, StatusCode.RESOURCE_EXHAUSTED)
        assert "ratelimit" in passed.trailing and "ratelimit" in refused.trailing
