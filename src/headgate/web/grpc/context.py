"""The context of a handler: our fields join its trailing metadata, and its code settles the charges."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable
from typing import Any

import grpc

from headgate.steps import Steps
from headgate.web.grpc.marks import Marks
from headgate.web.grpc.rpc import STATUSES, Metadata, Refused, refusal_for, status_of
from headgate.web.request_decision import RequestDecision
from headgate.web.request_limits import RequestLimits
from headgate.web.responder import Raised


class Context:
    """A wrapper of the server's own context, which has all other attributes."""

    def __init__(self, context: Any, request_limits: RequestLimits[str], marks: Marks) -> None:  # noqa: ANN401
        self.headgate_marks = marks
        """The marks of the method that were read; the method checks them."""
        self._context = context
        self._request_limits = request_limits
        self._fields: Metadata = tuple(request_limits.fields)
        self._given: Metadata = ()
        self._code: Any = None
        self.set_trailing_metadata(trailing_of(context))

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._context, name)

    @property
    def rate_limit(self) -> RequestDecision:
        """The decision about the call."""
        seen = RequestDecision()
        seen.limits = self._request_limits
        return seen

    def set_trailing_metadata(self, trailing_metadata: Any) -> None:  # noqa: ANN401
        """Set the metadata as the server's own context does, with the fields that show what is left."""
        self._given = tuple(trailing_metadata or ())
        self._context.set_trailing_metadata((*self._given, *self._fields))

    def trailing_metadata(self) -> Metadata:
        """Return the metadata that the handler has set."""
        return self._given

    def set_code(self, code: Any) -> None:  # noqa: ANN401
        """Set the code as the server's own context does."""
        self._code = code
        self._context.set_code(code)

    def code(self) -> Any:  # noqa: ANN401
        """Return the code that the handler has set."""
        return self._code

    def abort(self, code: Any, details: str = "", trailing_metadata: Any = ()) -> Any:  # noqa: ANN401
        """Abort as the server's own context does; in an event loop, the result is awaited."""
        self._code = code
        if trailing_metadata:
            self.set_trailing_metadata(trailing_metadata)
        return self._counted_then(lambda: self._context.abort(code, details))

    def abort_with_status(self, status: Any) -> Any:  # noqa: ANN401
        """Abort as the server's own context does."""
        return self.abort(status.code, status.details, status.trailing_metadata)

    def _refuse_by(self, error: Raised) -> Any:  # noqa: ANN401
        """End a call in whose handler a limiter or a budget of the app's own has raised its error."""
        return self._refuse(refusal_for(self._request_limits, error))

    def _refuse(self, refused: Refused) -> Any:  # noqa: ANN401
        """End a call after its handler has begun."""
        self._code = refused.code
        return self._counted_then(lambda: refuse(self._context, refused, self._given))

    def _counted_then(self, send: Callable[[], Any]) -> Any:  # noqa: ANN401
        """Settle the charges, then send; a server in an event loop sends an abort at once."""
        raise NotImplementedError

    def _end_by(self, error: BaseException) -> None:
        """Set the code for an error, unless the handler has set one."""
        if isinstance(error, TimeoutError):
            self._request_limits.started(STATUSES[grpc.StatusCode.DEADLINE_EXCEEDED])
        if self._code is None:
            self._code = grpc.StatusCode.CANCELLED if is_gone(self._context) else code_of(error)

    def _end(self) -> Steps[None]:
        """Settle the charges by the end of the call, and release its permits."""
        yield from self._count()
        yield from self._request_limits.release()

    def _count(self) -> Steps[None]:
        """Settle the charges by the call's code, once, and update the fields that show what is left."""
        code = grpc.StatusCode.OK if self._code is None else self._code
        fields_sent = {name.lower(): value for name, value in self._given if isinstance(value, str)}
        yield from self._request_limits.after(status_of(code), fields_sent.get)
        fields = tuple(self._request_limits.fields)
        if fields != self._fields and not is_gone(self._context):  # settling has changed what is left
            self._fields = fields
            self._context.set_trailing_metadata((*self._given, *fields))


def code_of(error: BaseException) -> grpc.StatusCode:
    """Return the code of a call that an error ends."""
    gone = isinstance(error, GeneratorExit | CancelledError)
    return grpc.StatusCode.CANCELLED if gone else grpc.StatusCode.UNKNOWN


def is_gone(context: Any) -> bool:  # noqa: ANN401
    """Return whether the client has gone; only contexts of threads can tell, and threads have no other way."""
    return hasattr(context, "is_active") and not context.is_active()


def refuse(context: Any, refused: Refused, given: Metadata) -> Any:  # noqa: ANN401
    """End a call with a refusal; in an event loop, the result is awaited."""
    context.set_trailing_metadata((*given, *refused.metadata))
    return context.abort(refused.code, refused.details)


def trailing_of(context: Any) -> Metadata:  # noqa: ANN401
    """Return the metadata that earlier interceptors have set, if the context has it."""
    metadata = getattr(context, "trailing_metadata", tuple)
    return tuple(metadata() or ())
