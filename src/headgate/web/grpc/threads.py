"""Calls with handlers that run in threads.

The `abort` of a context raises an error. Before grpcio 1.85 it returned in the threads of an event loop, so that the
call ended for the client only: nothing here may rely on the error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import grpc

from headgate.steps import run
from headgate.web.grpc.context import Context, is_gone, refuse, trailing_of
from headgate.web.grpc.interceptor import Interceptor, Method
from headgate.web.grpc.marks import Marks
from headgate.web.grpc.rpc import STATUSES, Raw, Rpc, refusal
from headgate.web.request_limits import RequestLimits
from headgate.web.responder import RAISED

Run = Callable[[Any], Any]
"""Runs steps, and returns their result."""
NO_RESPONSE: Final = Raw(b"")
"""The response of a call that was aborted: it is not sent."""


class RateLimitInterceptor(Interceptor, grpc.ServerInterceptor):
    """For `grpc.server(pool, interceptors=[...])`. `default` are the limits of each method that has none of its own."""

    awaited = False

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], grpc.RpcMethodHandler[Any, Any] | None],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        """Put the handler behind its limits; a method without a handler stays unimplemented."""
        handler = continuation(handler_call_details)
        if handler is None:
            return None
        return in_thread(Method(self, handler_call_details.method, handler), run)


def in_thread(method: Method, run: Run) -> grpc.RpcMethodHandler[Any, Any]:
    """Return a handler behind limits that blocks only its own thread."""
    calls = _Calls(method, run)
    return method.handled_by(calls.stream if method.answers_stream else calls.respond)


class _ThreadContext(Context):
    """A context that settles the charges in the thread of its handler."""

    def __init__(self, context: Any, request_limits: Any, marks: Marks, run: Run) -> None:  # noqa: ANN401
        super().__init__(context, request_limits, marks)
        self._run = run

    def _counted_then(self, send: Callable[[], Any]) -> Any:  # noqa: ANN401
        if self._request_limits.follows:
            self._run(self._count())
        return send()


class _Calls:
    """The calls of one method."""

    def __init__(self, method: Method, run: Run) -> None:
        self._method = method
        self._run = run

    def respond(self, message: Any, context: Any) -> Any:  # noqa: ANN401
        """Handle a call with one response."""
        entered = self._enter(message, context)
        if isinstance(entered, Raw):
            return entered
        with self._counted(entered):
            return self._method.behavior(self._messages(message, entered), entered)

    def stream(self, message: Any, context: Any) -> Iterator[Any]:  # noqa: ANN401
        """Handle a call with a stream of responses."""
        entered = self._enter(message, context)
        if isinstance(entered, Raw):
            if entered.body:
                yield entered
            return
        with self._counted(entered):
            responses = self._method.behavior(self._messages(message, entered), entered)
            yield from responses if entered._request_limits.permit is None else _noting_start(responses, entered)

    def _enter(self, message: Any, context: Any) -> Context | Raw:  # noqa: ANN401
        method = self._method
        limits, admitted = method.owner.opening(method.rpc(message, context), method.marks.calls)
        if not isinstance(admitted, bool):
            admitted = self._run(admitted)
        if not admitted:
            refused = refusal(limits)
            if refused.raw is None:
                refuse(context, refused, trailing_of(context))
            return refused.raw or NO_RESPONSE
        self._leave_if_gone(limits, context)
        if limits.permit is not None:
            limits.permit.show()  # the steps may have run in an event loop, not in this thread
            if method.streams:
                limits.take_no_sample()
        return _ThreadContext(context, limits, method.marks, self._run)

    def _leave_if_gone(self, limits: RequestLimits[str], context: Any) -> None:  # noqa: ANN401
        """Refund and abort a call whose client has gone while a rule delayed it."""
        if limits.held and is_gone(context):
            self._run(limits.refund())
            context.abort(grpc.StatusCode.CANCELLED, "")

    def _messages(self, given: Any, context: Context) -> Any:  # noqa: ANN401
        """Return the request; or, if messages are counted, an iterator of the admitted ones."""
        return self._passing(given, context) if self._method.counts_messages else given

    def _passing(self, messages: Iterable[Any], context: Context) -> Iterator[Any]:
        method = self._method
        for message in messages:
            rpc = Rpc(method.name, context._context, message)
            limits, admitted = method.owner.message(rpc, method.marks.messages)
            if not isinstance(admitted, bool):
                admitted = self._run(admitted)
            if admitted:
                self._leave_if_gone(limits, context._context)
                if limits.holds_permits:  # a message is in flight until the handler gets it
                    self._run(limits.release())
                yield message
            else:
                refused = refusal(limits)
                if refused.raw is None:
                    context._refuse(refused)

    @contextmanager
    def _counted(self, context: Context) -> Iterator[None]:
        """Settle the charges when the call ends, in whatever way."""
        try:
            try:
                yield
            except RAISED as error:
                context._refuse_by(error)
        except BaseException as error:
            context._end_by(error)
            raise
        finally:
            permit = context._request_limits.permit
            if context._request_limits.follows:
                self._run(context._end())
            if permit is not None:
                permit.hide()


def _noting_start(responses: Iterable[Any], context: Context) -> Iterator[Any]:
    """Pass responses on; the latency of the call counts to the first one."""
    for response in responses:
        context._request_limits.started(STATUSES[grpc.StatusCode.OK])
        yield response
