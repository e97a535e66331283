"""Calls on a server in an event loop; handlers that are plain functions run in threads."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import grpc
import grpc.aio

from headgate.steps import run_awaiting, run_to_the_end
from headgate.web.grpc.context import Context, refuse, trailing_of
from headgate.web.grpc.interceptor import Interceptor, Method
from headgate.web.grpc.rpc import STATUSES, Raw, Rpc, refusal
from headgate.web.grpc.threads import Run, in_thread
from headgate.web.responder import RAISED


class AsyncRateLimitInterceptor(Interceptor, grpc.aio.ServerInterceptor):
    """For `grpc.aio.server(interceptors=[...])`. `default` are the limits of each method that has none of its own."""

    awaited = True

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any] | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        """Put the handler behind its limits; a method without a handler stays unimplemented."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        method = Method(self, handler_call_details.method, handler)
        calls = _Calls(method)
        if inspect.isasyncgenfunction(method.behavior):
            return method.handled_by(calls.stream)
        if inspect.iscoroutinefunction(method.behavior):
            return method.handled_by(calls.write if method.answers_stream else calls.respond)
        return in_thread(method, _from_thread(asyncio.get_running_loop()))


def _from_thread(loop: asyncio.AbstractEventLoop) -> Run:
    """Return a function that runs steps in the event loop and waits for them in its own thread."""
    return lambda steps: asyncio.run_coroutine_threadsafe(run_awaiting(steps), loop).result()


class _Calls:
    """The calls of one method."""

    def __init__(self, method: Method) -> None:
        self._method = method

    async def respond(self, message: Any, context: Any) -> Any:  # noqa: ANN401
        """Handle a call with one response."""
        entered = await self._enter(message, context)
        if isinstance(entered, Raw):
            return entered
        async with _counted(entered):
            return await self._method.behavior(self._messages(message, entered), entered)

    async def write(self, message: Any, context: Any) -> None:  # noqa: ANN401
        """Handle a call whose handler writes the responses itself."""
        entered = await self.respond(message, context)
        if isinstance(entered, Raw) and entered.body:
            await context.write(entered)

    async def stream(self, message: Any, context: Any) -> AsyncIterator[Any]:  # noqa: ANN401
        """Handle a call with a stream of responses."""
        entered = await self._enter(message, context)
        if isinstance(entered, Raw):
            if entered.body:
                yield entered
            return
        responses = self._method.behavior(self._messages(message, entered), entered)
        async with _counted(entered), aclosing(responses):
            async for response in responses:
                entered._request_limits.started(STATUSES[grpc.StatusCode.OK])
                yield response

    async def _enter(self, message: Any, context: Any) -> _AwaitedContext | Raw:  # noqa: ANN401
        method = self._method
        limits, admitted = method.owner.opening(method.rpc(message, context), method.marks.calls)
        if not isinstance(admitted, bool):
            admitted = await run_awaiting(admitted)
        if not admitted:
            refused = refusal(limits)
            return refused.raw or await refuse(context, refused, trailing_of(context))
        if method.streams:
            limits.take_no_sample()
        return _AwaitedContext(context, limits, method)

    def _messages(self, given: Any, context: _AwaitedContext) -> Any:  # noqa: ANN401
        """Return the request; or, if messages are counted, a stream of the admitted ones."""
        return _passing(given, context) if context._counts else given


class _AwaitedContext(Context):
    """A context from which handlers may read messages."""

    def __init__(self, context: Any, request_limits: Any, method: Method) -> None:  # noqa: ANN401
        super().__init__(context, request_limits, method.marks)
        self._method = method
        self._counts = method.counts_messages

    async def _counted_then(self, send: Callable[[], Any]) -> Any:  # noqa: ANN401
        if self._request_limits.follows:
            await run_to_the_end(self._count())
        return await send()

    async def write(self, message: Any) -> None:  # noqa: ANN401
        """Write like the server's own context; the latency of the call counts to the first message."""
        self._request_limits.started(STATUSES[grpc.StatusCode.OK])
        await self._context.write(message)

    async def read(self) -> Any:  # noqa: ANN401
        """Read like the server's own context; return only admitted messages."""
        while True:
            message = await self._context.read()
            if message is grpc.aio.EOF or not self._counts or await self._passes(message):
                return message

    async def _passes(self, message: Any) -> bool:  # noqa: ANN401
        method = self._method
        limits, admitted = method.owner.message(Rpc(method.name, self._context, message), method.marks.messages)
        if not isinstance(admitted, bool):
            admitted = await run_awaiting(admitted)
        if admitted:
            await run_awaiting(limits.release())  # a message is in flight until the handler gets it
            return True
        refused = refusal(limits)
        if refused.raw is None:
            await self._refuse(refused)
        return False


async def _passing(messages: AsyncIterable[Any], context: _AwaitedContext) -> AsyncIterator[Any]:
    async for message in messages:
        if await context._passes(message):
            yield message


@asynccontextmanager
async def _counted(context: Context) -> AsyncIterator[None]:
    """Settle the charges when the call ends, in whatever way."""
    try:
        try:
            yield
        except RAISED as error:
            await context._refuse_by(error)
    except BaseException as error:
        context._end_by(error)
        raise
    finally:
        if context._request_limits.follows:
            await run_to_the_end(context._end())
