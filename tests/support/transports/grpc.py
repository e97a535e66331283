"""gRPC: a service by gRPC, whose codes stand for the statuses of a suite, and clients in threads and in event loops."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import grpc
import grpc.aio
from grpc import StatusCode

from headgate.client import Budget
from headgate.client.grpc import aio_interceptors, interceptors
from headgate.testing import ManualClock
from tests.support.transports.clients import Body, Client, Got, awaited, streamed
from tests.support.transports.service import Service

CODES = {429: StatusCode.RESOURCE_EXHAUSTED, 503: StatusCode.UNAVAILABLE, 404: StatusCode.NOT_FOUND}
STATUSES = {code: status for status, code in CODES.items()}
TOLD = "as told"
LONG = 100
"""The timeout of a call in seconds, longer than the waits that a service tells."""
OPTIONS = (("grpc.enable_retries", 0),)


@contextmanager
def grpc_service(clock: ManualClock) -> Iterator[Service]:
    """A service with a method of each kind."""
    service = Service(clock)

    def answer(name: str, body: bytes, context: Any) -> bytes:
        service.watch(context)
        headers = {name: value for name, value in context.invocation_metadata() if isinstance(value, str)}
        with service.answering("POST", f"/test.Service/{name}", headers, body) as reply:
            told = {} if reply.wait is None else {"grpc-retry-pushback-ms": str(round(reply.wait * 1000))}
            context.set_trailing_metadata(tuple({**told, **reply.headers}.items()))
            if reply.status != 200:
                context.abort(CODES[reply.status], TOLD)
            return reply.body

    def unary(request: bytes, context: Any) -> bytes:
        return answer("Unary", request, context)

    def stream(request: bytes, context: Any) -> Iterator[bytes]:
        body = answer("Stream", request, context)
        yield from (body[at : at + 1] for at in range(len(body)))

    def collect(requests: Iterable[bytes], context: Any) -> bytes:
        return answer("Collect", b"".join(requests), context)

    def chat(requests: Iterable[bytes], context: Any) -> Iterator[bytes]:
        yield answer("Chat", b"".join(requests), context)

    handlers: dict[str, Any] = {
        "Unary": grpc.unary_unary_rpc_method_handler(unary),
        "Stream": grpc.unary_stream_rpc_method_handler(stream),
        "Collect": grpc.stream_unary_rpc_method_handler(collect),
        "Chat": grpc.stream_stream_rpc_method_handler(chat),
    }
    with ThreadPoolExecutor(16) as pool:
        server = grpc.server(pool, (grpc.method_handlers_generic_handler("test.Service", handlers),))
        service.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        try:
            yield service
        finally:
            server.stop(0).wait(10)


def got(error: Any) -> Got:
    """A failed call as a response, if the service has answered it; else the error is raised."""
    if error.details() != TOLD:
        raise error
    return Got(STATUSES[error.code()], dict([*error.trailing_metadata()]), b"")


class GrpcClient:
    """A channel for threads; a method of HTTP has no meaning, and the last part of a path names the kind of call."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._channel = channel

    def ask(
        self, method: str = "GET", path: str = "/", headers: Mapping[str, str] | None = None, body: Body = b""
    ) -> Got:
        metadata = tuple((name.lower(), value) for name, value in (headers or {}).items())
        name = f"/test.Service/{path[1:] or 'Unary'}"
        answer: bytes
        try:
            if isinstance(body, list):
                answer = self._channel.stream_unary(name.replace("Unary", "Collect"))(iter(body), LONG, metadata)
            elif path == "/Stream":
                answer = b"".join(self._channel.unary_stream(name)(body, LONG, metadata))
            else:
                answer = self._channel.unary_unary(name)(body, LONG, metadata)
        except grpc.RpcError as error:
            return got(error)
        return Got(200, {}, answer)


@contextmanager
def in_threads(budget: Budget, address: str) -> Iterator[Client]:
    with grpc.insecure_channel(address, OPTIONS) as channel:
        yield GrpcClient(grpc.intercept_channel(channel, *interceptors(budget)))


@contextmanager
def in_loops(budget: Budget, address: str, clock: ManualClock, moves: bool) -> Iterator[Client]:
    @asynccontextmanager
    async def opened() -> AsyncIterator[Callable[..., Any]]:
        intercepting = aio_interceptors(budget)
        async with grpc.aio.insecure_channel(address, OPTIONS, interceptors=intercepting) as channel:

            async def send(method: str, path: str, headers: Mapping[str, str], body: Body) -> Got:
                metadata = tuple((name.lower(), value) for name, value in headers.items())
                name = f"/test.Service/{path[1:] or 'Unary'}"
                options: dict[str, Any] = {"timeout": LONG, "metadata": metadata}
                try:
                    if isinstance(body, list):
                        call: Any = channel.stream_unary(name.replace("Unary", "Collect"))
                        answer = await call(streamed(body), **options)
                    elif path == "/Stream":
                        call = channel.unary_stream(name)
                        answer = b"".join([message async for message in call(body, **options)])
                    else:
                        answer = await channel.unary_unary(name)(body, **options)
                except grpc.aio.AioRpcError as error:
                    return got(error)
                return Got(200, {}, answer)

            yield send

    with awaited(opened, clock, moves) as client:
        yield client
