"""Calls of event loops."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import grpc.aio
from grpc import StatusCode

from headgate.client.budget import Budget
from headgate.client.grpc.rpc import Call, Continuation, Details, Heard, Message, NotSent, Rpc, checked, heard


def aio_interceptors(budget: Budget) -> tuple[Any, ...]:
    """Return the interceptors for a channel of `grpc.aio`, which takes one for each kind of call."""
    given = checked(budget, "aio_interceptors()")
    return _Unary(given), _Stream(given), _Collecting(given), _Chatting(given)


class _Interceptor:
    def __init__(self, budget: Budget) -> None:
        self._budget = budget

    async def _run(self, rpc: Rpc) -> Call:
        try:
            with rpc.in_time():
                return (await self._budget.run_async(rpc)).call
        except NotSent as error:
            return error.call

    async def _write(self, continuation: Continuation, details: Details, messages: Message) -> Call:
        """Send a stream of requests; the caller begins to write when this has returned."""

        async def begin(details: Details) -> Heard:
            return Heard(await continuation(details, messages))

        return await self._run(Rpc(details, begin, writes=True))


class _Unary(_Interceptor, grpc.aio.UnaryUnaryClientInterceptor):
    async def intercept_unary_unary(
        self, continuation: Continuation, client_call_details: Details, request: Message
    ) -> Call:
        """Send a call with one response."""

        async def begin(details: Details) -> Heard:
            call = await continuation(details, request)
            return await _or_cancel(call, _ended(call, call))

        return await self._run(Rpc(client_call_details, begin))


class _Stream(_Interceptor, grpc.aio.UnaryStreamClientInterceptor):
    async def intercept_unary_stream(
        self, continuation: Continuation, client_call_details: Details, request: Message
    ) -> Call:
        """Send a call with a stream of responses."""

        async def begin(details: Details) -> Heard:
            call = await continuation(details, request)
            return await _or_cancel(call, _begun(call))

        return await self._run(Rpc(client_call_details, begin))


class _Collecting(_Interceptor, grpc.aio.StreamUnaryClientInterceptor):
    async def intercept_stream_unary(
        self, continuation: Continuation, client_call_details: Details, request_iterator: Message
    ) -> Call:
        """Send a stream of requests."""
        return await self._write(continuation, client_call_details, request_iterator)


class _Chatting(_Interceptor, grpc.aio.StreamStreamClientInterceptor):
    async def intercept_stream_stream(
        self, continuation: Continuation, client_call_details: Details, request_iterator: Message
    ) -> Call:
        """Send a stream of requests, with a stream of responses."""
        return await self._write(continuation, client_call_details, request_iterator)


async def _or_cancel(call: Call, answer: Awaitable[Heard]) -> Heard:
    """Wait for an answer; a caller that is cancelled meanwhile cancels the call."""
    try:
        return await answer
    except CancelledError:
        call.cancel()
        raise


async def _ended(call: Call, result: Call) -> Heard:
    """Wait for the end of a call."""
    code, details = await call.code(), await call.details()
    return heard(result, code, details, await call.initial_metadata(), await call.trailing_metadata())


async def _begun(call: Call) -> Heard:
    """Wait for the first message of a stream. A stream that has failed would end well if it was read again."""
    messages = call.__aiter__()
    try:
        first = await anext(messages)
    except StopAsyncIteration:
        return await _ended(call, call)
    except grpc.aio.AioRpcError as error:
        return await _ended(call, _Failed(error))
    return heard(_resumed(first, messages), StatusCode.OK, "", await call.initial_metadata())


class _Failed:
    """A stream that raises its error where its messages are read."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __aiter__(self) -> AsyncIterator[Message]:
        return self

    async def __anext__(self) -> Message:
        raise self._error


async def _resumed(first: Message, messages: AsyncIterator[Message]) -> AsyncIterator[Message]:
    """Yield the messages of a stream whose first message was read."""
    yield first
    async for message in messages:
        yield message
