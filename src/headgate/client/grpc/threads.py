"""Calls of threads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
from grpc import StatusCode

from headgate.client.budget import Budget
from headgate.client.grpc.rpc import Call, Continuation, Details, Heard, Message, NotSent, Rpc, checked, heard


def interceptors(budget: Budget) -> tuple[Any, ...]:
    """Return the interceptors for `grpc.intercept_channel`."""
    return (_Interceptor(checked(budget, "interceptors()")),)


class _Interceptor(
    grpc.UnaryUnaryClientInterceptor,
    grpc.UnaryStreamClientInterceptor,
    grpc.StreamUnaryClientInterceptor,
    grpc.StreamStreamClientInterceptor,
):
    def __init__(self, budget: Budget) -> None:
        self._budget = budget

    def intercept_unary_unary(self, continuation: Continuation, client_call_details: Details, request: Message) -> Call:
        """Send a call with one response."""
        return self._run(Rpc(client_call_details, lambda details: _ended(continuation(details, request))))

    def intercept_unary_stream(
        self, continuation: Continuation, client_call_details: Details, request: Message
    ) -> Call:
        """Send a call with a stream of responses."""
        return self._run(Rpc(client_call_details, lambda details: _begun(continuation(details, request))))

    def intercept_stream_unary(
        self, continuation: Continuation, client_call_details: Details, request_iterator: Message
    ) -> Call:
        """Send a stream of requests; the answer is heard if the caller waits for it."""

        def begin(details: Details) -> Heard:
            call = continuation(details, request_iterator)
            rpc.answered = call.done()
            return _ended(call) if rpc.answered else Heard(call)

        rpc = Rpc(client_call_details, begin, writes=True)
        return self._run(rpc)

    def intercept_stream_stream(
        self, continuation: Continuation, client_call_details: Details, request_iterator: Message
    ) -> Call:
        """Send a stream of requests, with a stream of responses."""
        begin = lambda details: Heard(continuation(details, request_iterator))  # noqa: E731
        return self._run(Rpc(client_call_details, begin, writes=True))

    def _run(self, rpc: Rpc) -> Call:
        try:
            with rpc.in_time():
                return self._budget.run(rpc).call
        except NotSent as error:
            return error.call


def _ended(call: Call) -> Heard:
    """Wait for the end of a call."""
    return heard(call, call.code(), call.details(), call.initial_metadata(), call.trailing_metadata())


def _begun(call: Call) -> Heard:
    """Wait for the first message of a stream; a stream that has ended without one ends again when it is read."""
    try:
        first = next(call)
    except (StopIteration, grpc.RpcError):
        return _ended(call)
    return heard(_Resumed(call, first), StatusCode.OK, "", call.initial_metadata())


class _Resumed:
    """A stream whose first message was read; all else is that of the call."""

    def __init__(self, call: Call, first: Message) -> None:
        self._call, self._first = call, [first]

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._call, name)

    def __iter__(self) -> Iterator[Message]:
        return self

    def __next__(self) -> Message:
        return self._first.pop() if self._first else next(self._call)
