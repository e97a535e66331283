"""The base of both interceptors: decides on calls and messages, in steps that threads and event loops run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Unpack

import grpc

from headgate.errors import InvalidCall
from headgate.steps import Steps
from headgate.web.edge import Edge
from headgate.web.endpoint import EndpointLimit
from headgate.web.grpc.context import code_of
from headgate.web.grpc.marks import Marks, marks_of, without_check
from headgate.web.grpc.rpc import METHOD, RPCS, Raw, Rpc, address_of, status_of
from headgate.web.options import Options, PolicyGiven, WebOptions
from headgate.web.request_limits import RequestLimits, limits_of
from headgate.web.runtime import Runtime

Wanted = tuple[EndpointLimit, ...]
Opened = tuple[RequestLimits[str], bool | Steps[bool]]
"""The limits of a call, and the result of `admit`."""


class Interceptor(Edge[str]):
    """A policy in front of methods, and the limits of single ones."""

    awaited: ClassVar[bool]
    """Whether stores are awaited."""

    def __init__(
        self,
        policy: PolicyGiven | None = None,
        *,
        default: Any = None,  # noqa: ANN401
        key: Any = "ip",  # noqa: ANN401
        **options: Unpack[Options],
    ) -> None:
        self._runtime: Runtime[str] = Runtime(policy, RPCS, WebOptions(**options), awaited=self.awaited)
        self._limits = limits_of(self._runtime)
        self.default = Marks(() if default is None else (EndpointLimit(default, {"key": key}),))

    def opening(self, rpc: Rpc, wanted: Wanted) -> Opened:
        """Decide on a call, by the policy and by the limits of its method."""
        limits = self._limits()
        if self._runtime.looks:
            limits.view = self._runtime.look(rpc)
        return limits, self._admit(rpc, limits, METHOD, wanted)

    def message(self, rpc: Rpc, wanted: Wanted) -> Opened:
        """Decide on a message that a client has streamed."""
        limits = self._limits()
        return limits, self._admit(rpc, limits, "MESSAGE", wanted)

    def _admit(self, rpc: Rpc, limits: RequestLimits[str], method: str, wanted: Wanted) -> bool | Steps[bool]:
        peer, limits.request = address_of(rpc.context.peer()), rpc
        admitted = limits.admit(rpc, method, rpc.method, peer)
        if not wanted or admitted is False:
            return admitted
        if isinstance(admitted, bool):
            return limits.admit(rpc, METHOD, rpc.method, peer, wanted)  # a limit of messages has no `match` by method
        return _admit_both(limits, admitted, lambda: limits.admit(rpc, METHOD, rpc.method, peer, wanted))

    @property
    def counts_messages(self) -> bool:
        """Whether a rule of the policy counts the messages of streams."""
        return self._runtime.responder_now.counts_messages


def _admit_both(
    limits: RequestLimits[str], by_policy: Steps[bool], ask: Callable[[], bool | Steps[bool]]
) -> Steps[bool]:
    """Decide by the policy, then by the method's limits; a call that ends there with an error is settled."""
    if not (yield from by_policy):
        return False
    try:
        admitted = ask()
        return admitted if isinstance(admitted, bool) else (yield from admitted)
    except BaseException as error:
        yield from limits.end(status_of(code_of(error)))
        raise


class Method:
    """One method of a server: its handler, and its limits."""

    def __init__(self, owner: Interceptor, name: str, handler: grpc.RpcMethodHandler[Any, Any]) -> None:
        self.owner = owner
        self.name = name
        self.streams = handler.request_streaming
        """Whether requests are streamed."""
        self.answers_stream = handler.response_streaming
        self._kind = f"{_word(self.streams)}_{_word(self.answers_stream)}"
        self._handler = handler
        behavior = getattr(handler, self._kind)
        self.behavior: Callable[[Any, Any], Any] = without_check(behavior)
        marks = marks_of(behavior)
        self.marks = owner.default if marks is None else marks
        if self.marks.messages and not self.streams:
            raise InvalidCall(f"{name} receives a single message; a limit on messages needs a streaming method")

    def rpc(self, message: Any, context: Any) -> Rpc:  # noqa: ANN401
        """Return a call of this method, as it opens."""
        return Rpc(self.name, context, None if self.streams else message)

    @property
    def counts_messages(self) -> bool:
        """Whether the messages of a stream are counted."""
        return self.streams and (bool(self.marks.messages) or self.owner.counts_messages)

    def handled_by(self, behavior: Callable[[Any, Any], Any]) -> grpc.RpcMethodHandler[Any, Any]:
        """Return a handler of this method with another behavior, whose responses may be `Raw`."""
        serialize = self._handler.response_serializer

        def serialized(response: Any) -> Any:  # noqa: ANN401
            if isinstance(response, Raw):
                return response.body
            return response if serialize is None else serialize(response)

        make: Callable[..., grpc.RpcMethodHandler[Any, Any]] = getattr(grpc, f"{self._kind}_rpc_method_handler")
        return make(behavior, self._handler.request_deserializer, serialized)


def _word(streaming: bool) -> str:
    return "stream" if streaming else "unary"
