"""Calls of gRPC through a budget: streams in both directions, timeouts, metadata, and codes that are no refusals."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

pytest.importorskip("grpc")
import grpc
from grpc import StatusCode

from headgate import InvalidCall, MemoryStore
from headgate.client import Budget, Outgoing, Retries, chat
from headgate.client.grpc import aio_interceptors, interceptors
from headgate.client.grpc.rpc import NotSent, heard
from headgate.errors import BudgetExhausted
from headgate.testing import ManualClock
from tests.support.transports.grpc import grpc_service, in_loops, in_threads
from tests.support.transports.service import Reply, Service

pytestmark = pytest.mark.engineless

START = 1_000_000.0
SIDES = ("threads", "loops")


@contextmanager
def asking(side: str, *replies: Reply, **options: Any) -> Iterator[tuple[Any, Service, Budget]]:
    """A client of either kind."""
    clock = ManualClock(START)
    budget = Budget(store=MemoryStore(clock=clock), **options)
    with grpc_service(clock) as service:
        service.replies.extend(replies)
        opened = in_threads(budget, service.address)
        with opened if side == "threads" else in_loops(budget, service.address, clock, True) as client:
            yield client, service, budget


@contextmanager
def channel(*replies: Reply, limits: str = "") -> Iterator[tuple[Any, Service, Budget]]:
    """A channel for threads."""
    clock = ManualClock(START)
    budget = Budget(limits or (), store=MemoryStore(clock=clock))
    with grpc_service(clock) as service, grpc.insecure_channel(service.address) as bare:
        service.replies.extend(replies)
        yield grpc.intercept_channel(bare, *interceptors(budget)), service, budget


@pytest.mark.parametrize("side", SIDES)
def test_a_stream_that_is_refused_before_its_first_message_is_sent_again(side):
    """The caller gets all messages of the stream that went well, the first included."""
    with asking(side, Reply(429, wait=2)) as (client, service, budget):
        assert client.ask(path="/Stream", body=b"x").body == b"hello"
    assert (len(service.seen), budget.report().refused_there) == (2, 1)
    assert service.seen[1].at - service.seen[0].at >= 2


@pytest.mark.parametrize("side", SIDES)
def test_a_stream_without_messages_ends_well(side):
    """A stream may be empty, and a final error is raised where the messages are read."""
    with asking(side, Reply(body=b""), Reply(404)) as (client, service, _):
        assert client.ask(path="/Stream").body == b""
        assert client.ask(path="/Stream").status == 404
    assert len(service.seen) == 2


def test_a_stream_is_still_a_call():
    """Its code, its metadata and its cancellation are those of the call that went well."""
    with channel(Reply(429, wait=1), Reply(headers={"x-left": "4"})) as (intercepted, _, _):
        stream = intercepted.unary_stream("/test.Service/Stream")(b"x")
        assert list(stream) == [b"h", b"e", b"l", b"l", b"o"]
        assert (stream.code(), dict(stream.trailing_metadata())) == (StatusCode.OK, {"x-left": "4"})
        cancelled = intercepted.unary_stream("/test.Service/Stream")(b"x")
        assert next(cancelled) == b"h" and cancelled.cancel()


@pytest.mark.parametrize("method", ["Collect", "Chat"])
def test_a_stream_that_the_caller_writes_is_sent_in_its_turn(method):
    """The call returns when it is sent, not when it is answered, so that the caller can write; it is sent once."""
    with channel(Reply(), Reply(429, wait=1), limits="60/minute") as (intercepted, service, budget):
        for status in (StatusCode.OK, StatusCode.RESOURCE_EXHAUSTED):
            messages: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
            path = f"/test.Service/{method}"
            collecting, chatting = intercepted.stream_unary(path).future, intercepted.stream_stream(path)
            call: Any = (collecting if method == "Collect" else chatting)(iter(messages.get, None))
            for message in (b"a", b"b", None):
                messages.put(message)
            with suppress(grpc.RpcError):
                assert [call.result()] == [b"hello"] if method == "Collect" else list(call) == [b"hello"]
            assert call.code() is status
    assert [each.body for each in service.seen] == [b"ab", b"ab"]
    assert service.seen[1].at - service.seen[0].at > 1.02
    assert budget.report().sent == 2


def test_a_client_stream_that_is_waited_for_is_heard():
    """A refusal of a call that the caller waits for pauses the key, although the call is not sent again."""
    with channel(Reply(429, wait=5)) as (intercepted, service, budget):
        with pytest.raises(grpc.RpcError):
            intercepted.stream_unary("/test.Service/Collect")(iter([b"a"]))
        assert intercepted.unary_unary("/test.Service/Unary")(b"x") == b"hello"
    assert (budget.report().refused_there, budget.report().paused) == (1, 1)
    assert service.seen[1].at - service.seen[0].at >= 5


def test_streams_in_an_event_loop_are_written_as_without_a_budget():
    """A caller writes by an iterator or by `write`, and reads what the service answers."""

    async def messages() -> AsyncIterator[bytes]:
        yield b"a"
        yield b"b"

    async def main(service: Service) -> list[bytes]:
        budget = Budget()
        made: Any = grpc.aio.insecure_channel(service.address, interceptors=aio_interceptors(budget))
        async with made as opened:
            collected = await opened.stream_unary("/test.Service/Collect")(messages())
            chatted = [each async for each in opened.stream_stream("/test.Service/Chat")(messages())]
            call = opened.stream_unary("/test.Service/Collect")()
            await call.write(b"c")
            await call.done_writing()
            return [collected, *chatted, await call]

    with grpc_service(ManualClock(START)) as service:
        assert asyncio.run(main(service)) == [b"hello"] * 3
    assert [each.body for each in service.seen] == [b"ab", b"ab", b"c"]


def test_a_future_waits_for_its_answer_and_has_its_code():
    """A future of a refused connection is the failed call itself, with the code of the library."""
    with channel(Reply(429, wait=1)) as (intercepted, service, _):
        future = intercepted.unary_unary("/test.Service/Unary").future(b"x")
        assert (future.result(), future.code(), len(service.seen)) == (b"hello", StatusCode.OK, 2)
    budget = Budget(store=MemoryStore(clock=ManualClock(START)))
    with grpc.insecure_channel("127.0.0.1:1") as bare:
        nowhere: Any = grpc.intercept_channel(bare, *interceptors(budget))
        failed = nowhere.unary_unary("/test.Service/Unary").future(b"x", metadata=(("x-stainless-retry-count", "1"),))
        assert failed.code() is StatusCode.UNAVAILABLE
    assert budget.report().sent == 1


@pytest.mark.parametrize("side", SIDES)
def test_the_timeout_of_a_call_is_for_all_its_attempts(side):
    """A wait that would be longer than the time left is not begun: the refusal is the answer."""
    patient = Retries(longest_wait=400, in_all=1000)
    with asking(side, Reply(429, wait=300), retries=patient) as (client, service, budget):
        assert client.ask().status == 429
        with pytest.raises(BudgetExhausted, match="the server asked for a pause"):
            client.ask()
    assert (len(service.seen), budget.report().retried) == (1, 0)


def test_a_call_has_the_name_of_its_service_as_its_host():
    """The target of a channel is not seen; functions of keys read the method and the metadata."""
    requests: list[Outgoing] = []

    def key(request: Outgoing) -> str:
        requests.append(request)
        return "one"

    for side in SIDES:
        with asking(side, key=key) as (client, _, _):
            client.ask(headers={"X-Kind": "test"})
    for request in requests:
        assert (request.method, request.host, request.path) == ("POST", "test.Service", "/test.Service/Unary")
        assert request.headers["x-kind"] == "test"
    assert len(requests) == 2


def test_retry_info_is_obeyed():
    """The delay of a google.rpc.RetryInfo in the metadata `grpc-status-details-bin` is the told time."""
    url = b"type.googleapis.com/google.rpc.RetryInfo"
    detail = b"\x0a" + bytes([len(url)]) + url + b"\x12\x04\x0a\x02\x08\x0a"
    status: Any = b"\x08\x08\x1a" + bytes([len(detail)]) + detail
    for side in SIDES:
        with asking(side, Reply(429, headers={"grpc-status-details-bin": status})) as (client, service, _):
            assert client.ask().status == 200
        assert service.seen[1].at - service.seen[0].at >= 10, side


def test_a_message_that_is_too_large_is_no_refusal():
    """It is RESOURCE_EXHAUSTED too; the same call would fail again, and no limit of a rate was met."""
    clock = ManualClock(START)
    budget = Budget(store=MemoryStore(clock=clock))
    with grpc_service(clock) as service:
        service.replies.append(Reply(body=b"x" * 5000))
        options = (("grpc.max_receive_message_length", 1000),)
        with grpc.insecure_channel(service.address, options) as bare, pytest.raises(grpc.RpcError) as failed:
            intercepted: Any = grpc.intercept_channel(bare, *interceptors(budget))
            intercepted.unary_unary("/test.Service/Unary")(b"x")
    assert failed.value.code() is StatusCode.RESOURCE_EXHAUSTED
    assert (len(service.seen), budget.report().refused_there) == (1, 0)


@pytest.mark.parametrize(
    ("code", "details", "status"),
    [
        (StatusCode.OK, None, 200),
        (StatusCode.RESOURCE_EXHAUSTED, "quota", 429),
        (StatusCode.RESOURCE_EXHAUSTED, "SERVER: Received message larger than max (9 vs. 4)", 413),
        (StatusCode.UNAVAILABLE, "Socket closed", 503),
        (StatusCode.DEADLINE_EXCEEDED, "", 504),
        (StatusCode.INTERNAL, "", 500),
        (StatusCode.UNIMPLEMENTED, "", 501),
        (StatusCode.NOT_FOUND, "", 400),
        (StatusCode.CANCELLED, "", 400),
        (StatusCode.UNAVAILABLE, "failed to connect to all addresses; last error: ...", None),
        (StatusCode.UNAVAILABLE, "DNS resolution failed for nowhere", None),
    ],
)
def test_a_ledger_of_codes(code, details, status):
    """Codes in the words of HTTP; None stands for a call that was never sent."""
    if status is None:
        with pytest.raises(NotSent):
            heard("call", code, details)
    else:
        assert heard("call", code, details, None, [("a", "1")]) == ("call", status, {"a": "1"})


def test_a_call_that_is_cancelled_is_cancelled_at_the_service():
    """A task that is cancelled while it waits for the answer leaves no call behind."""

    async def main(service: Service) -> None:
        made: Any = grpc.aio.insecure_channel(service.address, interceptors=aio_interceptors(Budget()))
        async with made as opened:
            await opened.unary_unary("/test.Service/Unary")(b"first")
            service.hold()
            call = opened.unary_unary("/test.Service/Unary")(b"second")
            while len(service.seen) < 2:
                await asyncio.sleep(0.001)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert await asyncio.to_thread(ended.wait, 2), "before the channel is closed"

    ended = threading.Event()
    with grpc_service(ManualClock(START)) as service:
        service.watch = lambda context: context.add_callback(ended.set) if len(service.seen) == 1 else None
        try:
            asyncio.run(main(service))
        finally:
            service.release()


def test_tokens_are_not_counted_in_messages():
    """A budget with `usage=` reads bodies of HTTP: a channel with it is a mistake, which is told at once."""
    for made in (interceptors, aio_interceptors):
        with pytest.raises(InvalidCall, match="make a Budget without usage="):
            made(Budget("100/minute as tokens", usage=chat))
