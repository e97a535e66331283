"""gRPC servers of every kind with one service, and a channel to each."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import grpc
import grpc.aio
import pytest
from grpc import StatusCode

from headgate import Limiter, RateLimited
from headgate.errors import BudgetExhausted
from headgate.web.grpc import AsyncRateLimitInterceptor, RateLimitInterceptor
from tests.support.edges import still

KINDS = {"Unary": "unary_unary", "Stream": "unary_stream", "Collect": "stream_unary", "Chat": "stream_stream"}
TWO: dict[str, Any] = {"rules": [{"name": "api", "key": "ip", "limits": "2/minute"}]}


class Echo:
    """A service in threads. A message asks for what happens: `abort CODE`, `code CODE`, `raise`, `refuse`,
    `exhausted`, `cost N`, `settle N`, `left`, `wait`."""

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
        elif word == "refuse":
            raise RateLimited(Limiter("1/hour as views").hit("all", cost=2))
        elif word == "exhausted":
            raise BudgetExhausted("api.example", "the budget is used up", 12.2)
        elif word == "cost":
            context.set_trailing_metadata((("x-cost", rest),))
        elif word == "settle":
            context.rate_limit.settle(api=int(rest))
        elif word == "left":
            return b"%d" % context.rate_limit.remaining
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
    kind: str = "threads",
    policy: Any = None,
    *,
    echo: Any = None,
    before: Any = (),
    after: Any = (),
    at: str = "",
    **options: Any,
) -> Iterator[Served]:
    """A server of this kind, by a clock that stands still."""
    made = echo or SERVERS[kind]()
    options = {"store": still(), **options}
    listen = at or "127.0.0.1:0"
    with contextlib.ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(12))
        if kind == "threads":
            interceptor: Any = RateLimitInterceptor(policy, **options)
            server = grpc.server(pool, (handlers_of(made),), (*before, interceptor, *after))
            port = server.add_insecure_port(listen)
            server.start()
            stack.callback(lambda: server.stop(0).wait(10))
        else:
            interceptor = AsyncRateLimitInterceptor(policy, **options)
            port = stack.enter_context(in_loop(made, (*before, interceptor, *after), listen, pool))
        target = at or f"127.0.0.1:{port}"
        channel = stack.enter_context(grpc.insecure_channel(target, (("grpc.enable_retries", 0),)))
        stack.callback(made.gate.set if hasattr(made, "gate") else int)
        yield Served(made, interceptor, channel, target)


async def leave(pool: ThreadPoolExecutor) -> None:
    """Keep the loop until no handler in a thread needs it: the last word of a stream would find it closed, and be
    dropped in the middle of some later test. A thread whose stream is not read any more waits until it is cancelled."""
    idle = asyncio.create_task(asyncio.to_thread(pool.shutdown))
    while not idle.done():
        for task in asyncio.all_tasks() - {idle, asyncio.current_task()}:
            task.cancel()
        await asyncio.sleep(0.001)


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
        await leave(pool)

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
