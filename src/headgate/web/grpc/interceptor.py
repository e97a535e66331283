"""What both interceptors share: how a call and a message are ruled on, in steps that threads and event loops run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Unpack

import grpc

from headgate.errors import InvalidCall
from headgate.policy.steps import Steps
from headgate.web.endpoint import EndpointLimit
from headgate.web.grpc.context import code_of
from headgate.web.grpc.marks import Marks, marks_of
from headgate.web.grpc.rpc import GRPC, METHOD, Raw, Refused, Rpc, read_rpc, refusal, status_of
from headgate.web.request_limits import Entry, RequestLimits
from headgate.web.runtime import Options, PolicyGiven, Runtime


class Admitted(NamedTuple):
    """A yes, and how long to wait before it holds."""

    request_limits: RequestLimits[str]
    delay_us: int


class Interceptor:
    """A policy in front of methods, and the limits of single ones. `runtime` is where the counts are."""

    awaited: ClassVar[bool]
    """Whether stores are."""

    def __init__(
        self,
        policy: PolicyGiven | None = None,
        *,
        default: Any = None,  # noqa: ANN401
        key: Any = "ip",  # noqa: ANN401
        **options: Unpack[Options],
    ) -> None:
        self.runtime: Runtime[str] = Runtime(policy, GRPC, read_rpc, awaited=self.awaited, **options)
        self.default = Marks(() if default is None else (EndpointLimit(default, {"key": key}),))

    def opening(self, rpc: Rpc, limits: tuple[EndpointLimit, ...]) -> Steps[Admitted | Refused]:
        """Rule on a call, by the policy and by the limits of its method."""
        if self.runtime.looks:
            self.runtime.look(rpc)
        return (yield from self._rule(rpc, limits, None))

    def message(self, rpc: Rpc, limits: tuple[EndpointLimit, ...]) -> Steps[Admitted | Refused]:
        """Rule on a message that a client has streamed."""
        return (yield from self._rule(rpc, limits, "MESSAGE"))

    def _rule(self, rpc: Rpc, limits: tuple[EndpointLimit, ...], method: str | None) -> Steps[Admitted | Refused]:
        runtime = self.runtime
        view = runtime.view(rpc)
        view.method = method or view.method
        responder = runtime.responder(view)
        outcome = yield from responder.compiled.before(view)
        if outcome.kind != "pass":
            return refusal(responder, outcome)
        request_limits = RequestLimits(runtime, Entry(responder, outcome.group, outcome.decision, outcome.charges))
        delay = outcome.delay_us
        if limits:
            view.method = METHOD  # whoever names no method in a limit of messages means them
            try:
                responder, outcome = yield from request_limits.enter(view, limits)
            except BaseException as error:
                yield from request_limits.end(status_of(code_of(error)))
                raise
            if outcome.kind != "pass":
                return refusal(responder, outcome)
        if method == "MESSAGE":
            yield from request_limits.land()  # a message is in flight until it is handed over
        return Admitted(request_limits, max(delay, outcome.delay_us))


class Method:
    """One method of a server: its handler, and its limits."""

    def __init__(self, owner: Interceptor, name: str, handler: grpc.RpcMethodHandler[Any, Any]) -> None:
        self.owner = owner
        self.name = name
        self.streams = handler.request_streaming
        """Requests are."""
        self.answers_stream = handler.response_streaming
        self._kind = f"{_word(self.streams)}_{_word(self.answers_stream)}"
        self._handler = handler
        self.behavior: Callable[[Any, Any], Any] = getattr(handler, self._kind)
        marks = marks_of(self.behavior)
        self.marks = owner.default if marks is None else marks
        if self.marks.messages and not self.streams:
            raise InvalidCall(f"{name} receives one message only: a limit of its messages would never be asked")

    def rpc(self, message: Any, context: Any) -> Rpc:  # noqa: ANN401
        """A call of it, as it opens."""
        return Rpc(self.name, context, None if self.streams else message)

    def counts_messages(self, request_limits: RequestLimits[str]) -> bool:
        """Whether the messages of a stream are counted."""
        return self.streams and (bool(self.marks.messages) or request_limits.responder.counts_messages)

    def handled_by(self, behavior: Callable[[Any, Any], Any]) -> grpc.RpcMethodHandler[Any, Any]:
        """The same method with another behavior, whose responses may be raw."""
        serialize = self._handler.response_serializer

        def serialized(response: Any) -> Any:  # noqa: ANN401
            if isinstance(response, Raw):
                return response.body
            return response if serialize is None else serialize(response)

        make: Callable[..., grpc.RpcMethodHandler[Any, Any]] = getattr(grpc, f"{self._kind}_rpc_method_handler")
        return make(behavior, self._handler.request_deserializer, serialized)


def _word(streaming: bool) -> str:
    return "stream" if streaming else "unary"
