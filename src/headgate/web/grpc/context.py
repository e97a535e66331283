"""The context that a handler gets: what it sets travels with what is left, and says at the end what counts."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable
from typing import Any

import grpc

from headgate.errors import RateLimited
from headgate.policy.steps import Steps
from headgate.web.grpc.rpc import Metadata, Refused, refusal_for, status_of
from headgate.web.request_limits import RequestLimits


class Context:
    """Stands for the server's own context: whatever is not here is that one's."""

    def __init__(self, context: Any, request_limits: RequestLimits[str]) -> None:  # noqa: ANN401
        self._context = context
        self._request_limits = request_limits
        self._fields: Metadata = tuple(request_limits.fields)
        self._given: Metadata = ()
        self._code: Any = None
        self.set_trailing_metadata(trailing_of(context))

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._context, name)

    def set_trailing_metadata(self, trailing_metadata: Any) -> None:  # noqa: ANN401
        """As the server's own; what is left is added."""
        self._given = tuple(trailing_metadata or ())
        self._context.set_trailing_metadata((*self._given, *self._fields))

    def trailing_metadata(self) -> Metadata:
        """What the handler has set."""
        return self._given

    def set_code(self, code: Any) -> None:  # noqa: ANN401
        """As the server's own."""
        self._code = code
        self._context.set_code(code)

    def code(self) -> Any:  # noqa: ANN401
        """What the handler has set."""
        return self._code

    def abort(self, code: Any, details: str = "", trailing_metadata: Any = ()) -> Any:  # noqa: ANN401
        """As the server's own; in an event loop it is awaited."""
        self._code = code
        if trailing_metadata:
            self.set_trailing_metadata(trailing_metadata)
        return self._counted_then(lambda: self._context.abort(code, details))

    def abort_with_status(self, status: Any) -> Any:  # noqa: ANN401
        """As the server's own."""
        return self.abort(status.code, status.details, status.trailing_metadata)

    def _refuse_by(self, error: RateLimited) -> Any:  # noqa: ANN401
        """A limiter of the app's own has refused, in the handler."""
        return self._refuse(refusal_for(self._request_limits, error.decision))

    def _refuse(self, no: Refused) -> Any:  # noqa: ANN401
        """End a call that has begun."""
        self._code = no.code
        return self._counted_then(lambda: refuse(self._context, no, self._given))

    def _counted_then(self, send: Callable[[], Any]) -> Any:  # noqa: ANN401
        """Count before the client knows: a server in an event loop sends an abort at once."""
        raise NotImplementedError

    def _end_by(self, error: BaseException) -> None:
        """What an error comes to, where the handler has set no code."""
        if self._code is None:
            self._code = grpc.StatusCode.CANCELLED if is_gone(self._context) else code_of(error)

    def _end(self) -> Steps[None]:
        """Count what the end of the call says, and give back what is in flight."""
        yield from self._count()
        yield from self._request_limits.release()

    def _count(self) -> Steps[None]:
        """Count what the call came to, once, and tell what is left then."""
        code = grpc.StatusCode.OK if self._code is None else self._code
        told = {name.lower(): value for name, value in self._given if isinstance(value, str)}
        yield from self._request_limits.after(status_of(code), told.get)
        fields = tuple(self._request_limits.fields)
        if fields != self._fields and not is_gone(self._context):  # the end has changed what is left
            self._fields = fields
            self._context.set_trailing_metadata((*self._given, *fields))


def code_of(error: BaseException) -> grpc.StatusCode:
    """The code of a call that an error ends."""
    gone = isinstance(error, GeneratorExit | CancelledError)
    return grpc.StatusCode.CANCELLED if gone else grpc.StatusCode.UNKNOWN


def is_gone(context: Any) -> bool:  # noqa: ANN401
    """Whether nobody waits for the answer any more, where the context tells: threads are not told otherwise."""
    return hasattr(context, "is_active") and not context.is_active()


def refuse(context: Any, no: Refused, given: Metadata) -> Any:  # noqa: ANN401
    """End a call; in an event loop this is awaited."""
    context.set_trailing_metadata((*given, *no.metadata))
    return context.abort(no.code, no.details)


def trailing_of(context: Any) -> Metadata:  # noqa: ANN401
    """What interceptors before this one have set, where the context tells."""
    told = getattr(context, "trailing_metadata", tuple)
    return tuple(told() or ())
