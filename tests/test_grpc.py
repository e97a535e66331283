"""gRPC: all four kinds of methods, in threads and in event loops, on real servers with real channels."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import logging
import os
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from typing import Any, NamedTuple

import grpc
import grpc.aio
import pytest
from grpc import StatusCode

from headgate import HeadgateError, MemoryStore
from headgate.testing import ManualClock, disabled, frozen, reset_all
from headgate.web.grpc import AsyncRateLimitInterceptor, RateLimitInterceptor, Rpc, exempt, limited
from headgate.web.grpc.rpc import address_of
from headgate.web.refusal import Refusal
from tests.edges import LATER
from tests.test_judge_stores import Broken

WRONG = {"when": {"status": [401, 403]}}
KINDS = {"Unary": "unary_unary", "Stream": "unary_stream", "Collect": "stream_unary", "Chat": "stream_stream"}
TWO: dict[str, Any] = {"rules": [{"name": "api", "key": "ip", "limits": "2/minute"}]}


class Echo:
    """A service in threads. A message asks for what happens: `abort CODE`, `code CODE`, `raise`, `cost N`, `wait`."""

    def __init__(self) -> None:
        self.calls: list[bytes] = []
        self.gate = threading.Event()
        self.inside = threading.Semaphore(0)

    def heed(self, message: bytes, context: Any) -> bytes:
        self.calls.append(message)
        word, _, rest = message.decode().partition(" ")
        if word == "abort":
            context.abort(StatusCode[rest], "as told")
        elif word == "code":
            context.set_code(StatusCode[rest])
        elif word == "raise":
            raise LookupError("mine")
        elif word == "cost":
            context.set_trailing_metadata((("x-cost", rest),))
        elif word == "wait":
            self.inside.release()
            while context.is_active() and not self.gate.wait(0.001):
                pass
        return message

    def Unary(self, request: bytes, context: Any) -> bytes:
        return self.heed(request, context)

    def Stream(self, request: bytes, context: Any) -> Iterator[bytes]:
        yield self.heed(request, context)
        yield request

    def Collect(self, requests: Iterable[bytes], context: Any) -> bytes:
        return b",".join([self.heed(each, context) for each in requests])

    def Chat(self, requests: Iterable[bytes], context: Any) -> Iterator[bytes]:
        for each in requests:
            yield self.heed(each, context)


class AsyncEcho(Echo):
    """The same in an event loop."""

    async def aheed(self, message: bytes, context: Any) -> bytes:
        word, _, rest = message.decode().partition(" ")
        if word == "abort":
            self.calls.append(message)
            await context.abort(StatusCode[rest], "as told")
        if word == "wait":
            self.calls.append(message)
            self.inside.release()
            while not self.gate.is_set():
                await asyncio.sleep(0.001)
            return message
        return self.heed(message, context)

    async def Unary(self, request: bytes, context: Any) -> bytes:  # type: ignore[override]
        return await self.aheed(request, context)

    async def Stream(self, request: bytes, context: Any) -> AsyncIterator[bytes]:  # type: ignore[override]
        yield await self.aheed(request, context)
        yield request

    async def Collect(self, requests: Any, context: Any) -> bytes:  # type: ignore[override]
        return b",".join([await self.aheed(each, context) async for each in requests])

    async def Chat(self, requests: Any, context: Any) -> AsyncIterator[bytes]:  # type: ignore[override]
        async for each in requests:
            yield await self.aheed(each, context)


class ReadingEcho(AsyncEcho):
    """The same by reading from the context, and writing to it."""

    async def Stream(self, request: bytes, context: Any) -> None:  # type: ignore[override]
        await context.write(await self.aheed(request, context))
        await context.write(request)

    async def Collect(self, requests: Any, context: Any) -> bytes:  # type: ignore[override]
        found = []
        while (message := await context.read()) is not grpc.aio.EOF:
            found.append(await self.aheed(message, context))
        return b",".join(found)

    async def Chat(self, requests: Any, context: Any) -> None:  # type: ignore[override]
        while (message := await context.read()) is not grpc.aio.EOF:
            await context.write(await self.aheed(message, context))


SERVERS = {"threads": Echo, "loop": AsyncEcho, "reading": ReadingEcho, "threads of a loop": Echo}


class Answer(NamedTuple):
    """How a call ended."""

    code: StatusCode
    details: str
    trailing: dict[str, str]
    responses: list[bytes]


class Served:
    """A server that runs, and a channel to it."""

    def __init__(self, echo: Echo, interceptor: Any, channel: grpc.Channel, target: str) -> None:
        self.echo, self.interceptor, self.channel, self.target = echo, interceptor, channel, target

    def begin(self, method: str, *messages: Any, metadata: Any = (), service: str = "echo.Echo") -> Any:
        """A call under way; one message is streamed as it is."""
        kind = KINDS.get(method, "unary_unary")
        ask = getattr(self.channel, kind)(f"/{service}/{method}")
        given: Any = iter(messages or (b"",)) if kind.startswith("stream") else (messages or (b"",))[0]
        if len(messages) == 1 and isinstance(messages[0], Iterator):
            given = messages[0]
        options = {"metadata": tuple(metadata), "timeout": 10}
        return ask(given, **options) if kind.endswith("stream") else ask.future(given, **options)

    def ask(self, method: str = "Unary", *messages: Any, **more: Any) -> Answer:
        """A call and how it ended."""
        return ended(self.begin(method, *messages, **more), method)

    def codes(self, times: int, method: str = "Unary", *messages: Any, **more: Any) -> list[str]:
        """The same call again and again."""
        return [self.ask(method, *messages, **more).code.name for _ in range(times)]


def ended(call: Any, method: str = "Unary") -> Answer:
    """How a call ended; in the trailing metadata no name comes twice."""
    responses: list[bytes] = []
    with contextlib.suppress(grpc.RpcError):
        responses.extend(call if KINDS.get(method, "").endswith("stream") else [call.result()])
    pairs = [(name, value) for name, value in call.trailing_metadata() or () if isinstance(value, str)]
    assert len(dict(pairs)) == len(pairs)
    return Answer(call.code(), call.details(), dict(pairs), responses)


def handlers_of(echo: Any, service: str = "echo.Echo") -> grpc.GenericRpcHandler:
    """The methods of a service, whose messages are bytes."""
    made = {
        name: getattr(grpc, f"{kind}_rpc_method_handler")(getattr(echo, name))
        for name, kind in KINDS.items()
        if hasattr(echo, name)
    }
    return grpc.method_handlers_generic_handler(service, made)


@contextlib.contextmanager
def serving(
    kind: str = "threads", policy: Any = None, *, echo: Any = None, before: Any = (), at: str = "", **options: Any
) -> Iterator[Served]:
    """A server of this kind, by a clock that stands still."""
    made = echo or SERVERS[kind]()
    options = {"store": MemoryStore(clock=ManualClock(LATER)), **options}
    listen = at or "127.0.0.1:0"
    with contextlib.ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(12))
        if kind == "threads":
            interceptor: Any = RateLimitInterceptor(policy, **options)
            server = grpc.server(pool, (handlers_of(made),), (*before, interceptor))
            port = server.add_insecure_port(listen)
            server.start()
            stack.callback(lambda: server.stop(0).wait(10))
        else:
            interceptor = AsyncRateLimitInterceptor(policy, **options)
            port = stack.enter_context(in_loop(made, (*before, interceptor), listen, pool))
        target = at or f"127.0.0.1:{port}"
        channel = stack.enter_context(grpc.insecure_channel(target, (("grpc.enable_retries", 0),)))
        stack.callback(made.gate.set if hasattr(made, "gate") else int)
        yield Served(made, interceptor, channel, target)


@contextlib.contextmanager
def in_loop(echo: Any, interceptors: Any, listen: str, pool: ThreadPoolExecutor) -> Iterator[int]:
    """A server in an event loop in a thread."""
    ports: list[int] = []
    up, over = threading.Event(), threading.Event()

    async def main() -> None:
        server = grpc.aio.server(pool, (handlers_of(echo),), interceptors)
        ports.append(server.add_insecure_port(listen))
        await server.start()
        up.set()
        while not over.is_set():
            await asyncio.sleep(0.005)
        await server.stop(0)

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    try:
        assert up.wait(10)
        yield ports[0]
    finally:
        over.set()
        thread.join(10)


every_server = pytest.mark.parametrize("kind", SERVERS)
each_sort = pytest.mark.parametrize("kind", ["threads", "loop"])


@every_server
@pytest.mark.parametrize("method", KINDS)
def test_a_call_says_what_is_left_and_a_refusal_has_everything(kind, method):
    """All of it in trailing metadata, in lower case; the handler is not called for a refusal."""
    with serving(kind, TWO) as server:
        first = server.ask(method, b"hi")
        assert first.code is StatusCode.OK and first.responses == [b"hi"] * (2 if method == "Stream" else 1)
        assert first.trailing == {"ratelimit-policy": '"api";q=2;w=60', "ratelimit": '"api";r=1;t=30'}
        assert server.codes(1, method, b"hi") == ["OK"]
        refused = server.ask(method, b"hi")
        assert refused == Answer(
            StatusCode.RESOURCE_EXHAUSTED,
            "The quota is used up. Retry after 30 s.",
            {
                "ratelimit-policy": '"api";q=2;w=60', "ratelimit": '"api";r=0;t=60', "retry-after": "30",
                "grpc-retry-pushback-ms": "30000",
            },
            [],
        )  # fmt: skip
        assert len(server.echo.calls) == 2


@every_server
@pytest.mark.parametrize("method", ["Collect", "Chat"])
def test_a_stream_is_refused_before_its_first_message(kind, method):
    """While the client has not sent anything yet."""
    silent = threading.Event()

    def messages() -> Iterator[bytes]:
        silent.wait(10)
        yield b"late"

    with serving(kind, TWO) as server:
        server.codes(2)
        try:
            assert server.ask(method, messages()).code is StatusCode.RESOURCE_EXHAUSTED
        finally:
            silent.set()


def test_the_wait_is_told_in_milliseconds_and_never_too_short():
    """A third of a second is 334 ms; where no wait helps it is -1, and no more than the rule discloses."""
    rules: list[dict[str, Any]] = [
        {"match": {"path": "/echo.Echo/Unary"}, "limits": "3/second burst 1"},
        {"match": {"path": "/echo.Echo/Stream"}, "limits": "2/minute", "cost": 5},
        {"match": {"path": "/echo.Echo/Collect"}, "limits": "1/minute", "disclose": "retry"},
        {"match": {"path": "/echo.Echo/Chat"}, "limits": "1/minute", "disclose": "none"},
    ]
    with serving(policy={"rules": [{"key": "ip", **rule} for rule in rules]}) as server:
        server.codes(1), server.codes(1, "Collect"), server.codes(1, "Chat")
        told = {method: server.ask(method) for method in KINDS}
        assert {answer.code for answer in told.values()} == {StatusCode.RESOURCE_EXHAUSTED}
        assert told["Unary"].trailing["grpc-retry-pushback-ms"] == "334"
        assert told["Unary"].trailing["retry-after"] == "1"
        assert (
            told["Stream"].trailing["grpc-retry-pushback-ms"] == "-1" and "retry-after" not in told["Stream"].trailing
        )
        assert told["Collect"].trailing == {"retry-after": "60", "grpc-retry-pushback-ms": "60000"}
        assert told["Chat"].trailing == {} and told["Chat"].details == "The quota is used up. Try again later."


def test_a_crowd_is_told_to_come_back_one_after_the_other():
    """Nobody before the limit has room, and not all of them at once."""
    with serving(policy=TWO) as server:
        server.codes(2)
        waits = {int(server.ask().trailing["grpc-retry-pushback-ms"]) for _ in range(60)}
        assert min(waits) == 30_000 and len(waits) > 1


@each_sort
def test_the_code_of_a_refusal_follows_its_reason(kind):
    """On a list: PERMISSION_DENIED; no answer from the store: UNAVAILABLE, or counted here. No wait is told."""
    rule = {"key": "ip", "limits": "1/minute", "on_error": "deny"}
    policy = {"rules": [rule], "deny": {"header": {"x-bad": True}}}
    with serving(kind, policy, store=Broken()) as server:
        denied, away = server.ask(metadata=[("x-bad", "1")]), server.ask()
        assert denied[:3] == (StatusCode.PERMISSION_DENIED, "Forbidden. This client may not pass.", {})
        assert (away.code, away.trailing) == (StatusCode.UNAVAILABLE, {})
    with serving(kind, default="1/minute", store=Broken()) as server:
        assert server.codes(2) == ["OK", "RESOURCE_EXHAUSTED"]


def test_a_refusal_in_the_apps_own_words():
    """The body is what the client reads as details."""
    with serving(default="1/minute", refusal=Refusal("Slow down")) as server:
        assert [server.ask().details for _ in range(2)] == ["", "Slow down"]


def test_policies_know_methods_by_their_path():
    """A service by a star, one by its name; every call is a POST. What is not there stays unimplemented."""
    rules = [
        {"match": {"path": "/echo.Echo/*", "method": "POST"}, "key": ["ip", "path"], "limits": "2/minute"},
        {"match": {"route": "/echo.Echo/Stream"}, "key": "ip", "limits": "1/minute"},
        {"match": {"path": "/other.Echo/*"}, "key": "ip", "limits": "1/minute"},
    ]
    with serving(policy={"rules": rules}) as server:
        assert server.codes(3, "Unary") == ["OK", "OK", "RESOURCE_EXHAUSTED"]
        assert server.codes(2, "Stream") == ["OK", "RESOURCE_EXHAUSTED"]
        assert server.codes(3, "Nothing") == server.codes(3, "Unary", service="other.Echo") == ["UNIMPLEMENTED"] * 3


class Marked(Echo):
    """With limits of its own."""

    @limited("1/minute", key=lambda rpc: rpc.message)
    @limited("3/minute", key="everyone", name="all")
    def Unary(self, request: bytes, context: Any) -> bytes:
        return request

    @exempt
    def Stream(self, request: bytes, context: Any) -> Iterator[bytes]:
        yield request


class AsyncMarked(AsyncEcho):
    """The same in an event loop."""

    @limited("1/minute", key=lambda rpc: rpc.message)
    @limited("3/minute", key="everyone", name="all")
    async def Unary(self, request: bytes, context: Any) -> bytes:  # type: ignore[override]
        return request

    @exempt
    async def Stream(self, request: bytes, context: Any) -> AsyncIterator[bytes]:  # type: ignore[override]
        yield request


@each_sort
def test_methods_have_limits_of_their_own_or_the_default(kind):
    """Several are one decision, charged all or none; each method without its own has a count by the default."""
    echo = Marked() if kind == "threads" else AsyncMarked()
    with serving(kind, default="2/minute", echo=echo) as server:
        asked = [server.ask("Unary", name).code.name for name in (b"a", b"a", b"a", b"b", b"c", b"d")]
        assert asked == ["OK"] + ["RESOURCE_EXHAUSTED"] * 2 + ["OK"] * 2 + ["RESOURCE_EXHAUSTED"]
        assert server.codes(3, "Stream") == ["OK"] * 3
        assert server.codes(3, "Collect") == server.codes(3, "Chat") == ["OK", "OK", "RESOURCE_EXHAUSTED"]


def test_what_a_methods_limit_refuses_costs_nothing_in_the_policy():
    """Both tell what is left; the refusal only of the limit that refused."""
    echo: Any = Echo()
    echo.Collect = limited("1/minute")(echo.Collect)
    echo.Chat = functools.partial(limited("1/minute")(echo.Chat))
    policy = {"rules": [{"name": "api", "key": "ip", "limits": "4/minute"}]}
    with serving(policy=policy, echo=echo) as server:
        first, second = server.ask("Collect"), server.ask("Collect")
        assert first.trailing["ratelimit"] == '"api";r=3;t=15, "echo.Echo-Collect";r=0;t=60'
        assert second.trailing["ratelimit"] == '"echo.Echo-Collect";r=0;t=60'
        assert server.codes(2, "Chat") == ["OK", "RESOURCE_EXHAUSTED"]
        assert server.codes(3) == ["OK", "OK", "RESOURCE_EXHAUSTED"]


@every_server
@pytest.mark.parametrize("method", KINDS)
def test_only_wrong_passwords_count(kind, method, caplog):
    """By the code, whether it was set or the call aborted; an error without a code counts as 500."""
    caplog.set_level(logging.CRITICAL)
    policy = {"rules": [{"key": "ip", "limits": "2/minute", "count": WRONG}]}
    with serving(kind, policy) as server:
        for message, code in ((b"hi", "OK"), (b"abort NOT_FOUND", "NOT_FOUND"), (b"raise", "UNKNOWN")):
            assert server.codes(3, method, message) == [code] * 3
        assert server.codes(1, method, b"abort UNAUTHENTICATED") == ["UNAUTHENTICATED"]
        assert server.codes(1, method, b"code PERMISSION_DENIED") == ["PERMISSION_DENIED"]
        assert server.codes(1, method, b"hi") == ["RESOURCE_EXHAUSTED"]


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
            "x-cost": "3", "ratelimit-policy": '"api";q=10;w=60', "ratelimit": '"api";r=0;t=60',
        }  # fmt: skip
        assert server.ask(method, b"cost 3").trailing["grpc-retry-pushback-ms"] == "18000"


@each_sort
def test_ten_logins_at_once_at_a_limit_of_two(kind):
    """Two reach the handler, whatever it will answer; when they were good, two more may."""
    policy = {"rules": [{"key": "ip", "limits": "2/minute", "count": WRONG}]}
    with serving(kind, policy) as server:
        calls = [server.begin("Unary", b"wait") for _ in range(10)]
        assert server.echo.inside.acquire(timeout=10) and server.echo.inside.acquire(timeout=10)
        end = time.monotonic() + 10
        while sum(call.done() for call in calls) < 8 and time.monotonic() < end:
            time.sleep(0.001)
        assert [ended(call).code.name for call in calls if call.done()] == ["RESOURCE_EXHAUSTED"] * 8
        server.echo.gate.set()
        assert sorted(ended(call).code.name for call in calls) == ["OK"] * 2 + ["RESOURCE_EXHAUSTED"] * 8
        assert server.codes(2) == ["OK", "OK"]


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
            end = time.monotonic() + 10
            while (code := server.ask("Unary", b"abort NOT_FOUND").code.name) != "NOT_FOUND":
                assert time.monotonic() < end, code
            if "Endless" in echo.__name__:
                assert server.echo.inside.acquire(timeout=10)
        assert server.codes(2) == ["OK", "RESOURCE_EXHAUSTED"]


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


@every_server
def test_a_shadow_looks_like_any_other_answer(kind):
    """Its body is a message, of a stream only where there is one; of messages, one too many is left out."""
    rules: list[dict[str, Any]] = [
        {"match": {"path": "/echo.Echo/Unary"}},
        {"match": {"path": "/echo.Echo/Stream"}, "act": {"shadow": {"body": "x"}}},
        {"match": {"path": "/echo.Echo/Collect"}, "act": {"shadow": {"status": 404}}},
        {"match": {"path": "/echo.Echo/Chat"}},
        {"match": {"path": "/echo.Echo/Chat", "method": "MESSAGE"}},
    ]
    shadow = {"key": "ip", "limits": "1/minute", "act": "shadow"}
    with serving(kind, {"rules": [{**shadow, **rule} for rule in rules]}) as server:
        assert server.codes(1, "Unary") == server.codes(1, "Stream") == server.codes(1, "Collect") == ["OK"]
        chat = server.ask("Chat", b"a", b"b", b"c")
        assert (chat.code, chat.responses) == (StatusCode.OK, [b"a"])
        assert server.ask("Unary", b"a") == Answer(StatusCode.OK, "", {}, [b""])
        assert server.ask("Stream", b"a") == Answer(StatusCode.OK, "", {}, [b"x"])
        assert server.ask("Collect", b"a") == Answer(StatusCode.NOT_FOUND, "", {}, [])
        assert server.ask("Chat", b"a") == Answer(StatusCode.OK, "", {}, [])


def test_observe_lets_pass(caplog):
    """The log says what would have happened."""
    caplog.set_level(logging.INFO, "headgate.policy")
    with serving(policy={"rules": [{"key": "ip", "limits": "1/minute", "act": "observe"}]}) as server:
        assert server.codes(2) == ["OK", "OK"]
    assert "would refuse" in caplog.text


@every_server
def test_a_delay_holds_the_call_and_nobody_else(kind):
    """Five a second: the third in a row waits 0.4 seconds, the fourth is one too many; others answer meanwhile."""
    rule = {"match": {"path": "/echo.Echo/Unary"}, "key": "ip", "limits": "5/second", "act": {"delay": {"hold": 3}}}
    with serving(kind, {"rules": [rule]}) as server:
        start = time.monotonic()
        calls = [server.begin("Unary", b"hi") for _ in range(4)]
        assert server.codes(1, "Chat") == ["OK"]
        assert not all(call.done() for call in calls)
        assert sorted(ended(call).code.name for call in calls) == ["OK"] * 3 + ["RESOURCE_EXHAUSTED"]
        assert 0.4 <= time.monotonic() - start < 5


@pytest.mark.parametrize(("trusted", "last"), [("127.0.0.1", "OK"), ("10.0.0.0/8", "RESOURCE_EXHAUSTED")])
def test_forwarded_metadata_is_believed_of_trusted_proxies_only(trusted, last):
    """The loopback address is one in the first server, and nobody's proxy in the second."""
    with serving(default="1/minute", trusted_proxies=[trusted]) as server:
        claims = ("203.0.113.1", "6.6.6.6, 203.0.113.1", "203.0.113.2")
        codes = [server.ask(metadata=[("x-forwarded-for", claim)]).code.name for claim in claims]
        assert codes == ["OK", "RESOURCE_EXHAUSTED", last]


@each_sort
def test_the_peer_of_a_unix_socket_is_a_proxy(kind):
    """It has no address of its own."""
    with tempfile.TemporaryDirectory() as short:
        at = f"unix:{os.path.join(short, 's')}"
        with serving(kind, default="1/minute", trusted_proxies=["unix"], at=at) as server:
            claims = ("203.0.113.1", "203.0.113.1", "203.0.113.2")
            codes = [server.ask(metadata=[("x-forwarded-for", claim)]).code.name for claim in claims]
            assert codes == ["OK", "RESOURCE_EXHAUSTED", "OK"]


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:203.0.113.9:50051", "203.0.113.9"), ("ipv6:[2001:db8::1]:50051", "2001:db8::1"),
        ("ipv6:%5B2001:db8::1%5D:50051", "2001:db8::1"), ("ipv6:%5Bfe80::1%25eth0%5D:50051", "fe80::1"),
        ("ipv6:[::ffff:203.0.113.9]:50051", "203.0.113.9"), ("unix:", None), ("unix:/tmp/socket", None),
        ("unix-abstract:name", None), ("", None), ("ipv4:", None), ("ipv6:%5B", None), ("unknown", None),
    ],
)  # fmt: skip
def test_addresses_are_read_from_what_gRPC_calls_a_peer(peer, address):
    """Escaped or not; what has no address is nobody."""
    assert address_of(peer) == address


def test_who_it_is_and_what_it_asked_for():
    """Functions get the whole call; metadata is as headers are, and what is binary is left out."""
    seen: list[Rpc] = []

    def user(rpc: Rpc) -> str:
        seen.append(rpc)
        return str(dict(rpc.context.invocation_metadata())["x-user"])

    rule = {"key": ["user", {"header": "x-data-bin"}], "limits": {"default": "1/minute", "pro": "2/minute"}}
    options = {"user": user, "plan": lambda view: view.header("x-plan")}
    with serving(policy={"rules": [rule]}, **options) as server:
        ann = [("x-user", "ann"), ("x-data-bin", b"\xff")]
        assert server.codes(2, "Unary", b"hi", metadata=ann) == ["OK", "RESOURCE_EXHAUSTED"]
        assert server.codes(1, "Collect", metadata=[("x-user", "ann"), ("x-data-bin", b"\0")]) == ["RESOURCE_EXHAUSTED"]
        assert server.codes(3, metadata=[("x-user", "bob"), ("x-plan", "pro")]) == ["OK", "OK", "RESOURCE_EXHAUSTED"]
    assert (seen[0].method, seen[0].message) == ("/echo.Echo/Unary", b"hi")
    assert next(rpc.message for rpc in seen if rpc.method.endswith("Collect")) is None


class Curious(Echo):
    """Uses its context for everything."""

    def Unary(self, request: bytes, context: Any) -> bytes:
        assert context.is_active() and context.peer().startswith("ipv4:127.0.0.1:")
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
    """Also where it aborts, and with metadata for that."""
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
    """Of a yes and of a no."""
    with serving(default="1/minute", before=[Tracing()]) as server:
        passed, refused = server.ask(), server.ask()
        assert passed.trailing["x-trace"] == refused.trailing["x-trace"] == "7"
        assert (passed.code, refused.code) == (StatusCode.OK, StatusCode.RESOURCE_EXHAUSTED)
        assert "ratelimit" in passed.trailing and "ratelimit" in refused.trailing


def retrying(target: str) -> grpc.Channel:
    """A channel that tries again when it is told RESOURCE_EXHAUSTED, at first after a minute."""
    policy = {
        "maxAttempts": 3, "initialBackoff": "60s", "maxBackoff": "60s", "backoffMultiplier": 1,
        "retryableStatusCodes": ["RESOURCE_EXHAUSTED"],
    }  # fmt: skip
    config = json.dumps({"methodConfig": [{"name": [{"service": "echo.Echo"}], "retryPolicy": policy}]})
    return grpc.insecure_channel(target, (("grpc.service_config", config), ("grpc.enable_retries", 1)))


@each_sort
def test_a_client_with_a_retry_policy_comes_back_when_told_to(kind):
    """After 200 ms and not after its own minute; it does not where no wait helps."""
    rules = [
        {"match": {"path": "/echo.Echo/Unary"}, "key": "ip", "limits": "5/second burst 1"},
        {"match": {"path": "/echo.Echo/Stream"}, "key": "ip", "limits": "5/second", "cost": 9},
    ]
    tried: list[str] = []
    options = {"store": None, "plan": lambda view: tried.append(view.path)}
    with serving(kind, {"rules": rules}, **options) as server, retrying(server.target) as channel:
        ask: Any = channel.unary_unary("/echo.Echo/Unary")
        assert ask(b"one", timeout=10) == b"one"
        start = time.monotonic()
        assert ask(b"two", timeout=10) == b"two"
        assert 0.15 < time.monotonic() - start < 8
        assert len(tried) == 3
        call: Any = channel.unary_stream("/echo.Echo/Stream")(b"", timeout=10)
        assert ended(call, "Stream").code is StatusCode.RESOURCE_EXHAUSTED
        assert len(tried) == 4


def test_tools_for_testing_work_on_the_door():
    """Time that stands still, limits that are off, counts that are forgotten."""
    with serving(default="1/minute") as server:
        door = server.interceptor.door
        with frozen(door) as clock:
            assert server.codes(2) == ["OK", "RESOURCE_EXHAUSTED"]
            clock.advance(60)
            assert server.codes(2) == ["OK", "RESOURCE_EXHAUSTED"]
            reset_all(door)
            assert server.codes(2) == ["OK", "RESOURCE_EXHAUSTED"]
        with disabled(door):
            assert server.codes(3) == ["OK"] * 3


def test_mistakes_are_told(caplog):
    """In the limit itself where it is written; a limit of messages on a method that has one, when it is called."""
    with pytest.raises(HeadgateError, match="fortnight"):
        limited("1/fortnight")
    echo: Any = Echo()
    echo.Unary = limited("1/minute", messages=True)(echo.Unary)
    with serving(echo=echo) as server:
        assert server.codes(1) == ["UNKNOWN"]
    assert "/echo.Echo/Unary receives one message only" in caplog.text
