"""The class and the deadline of the request that this code works for, to pass them on to other services."""

from __future__ import annotations

from contextvars import ContextVar

from headgate.clock import MILLISECOND, steady_ns

CLASS_HEADER = "x-request-class"
DEADLINE_HEADER = "x-timeout-ms"

request_class: ContextVar[str | None] = ContextVar("headgate_request_class", default=None)
deadline_ns: ContextVar[int | None] = ContextVar("headgate_deadline_ns", default=None)
"""The instant of `steady_ns` by which the answer is worth something."""


def current_class() -> str | None:
    """Return the class of the request that this code works for, or None outside of a request."""
    return request_class.get()


def outgoing_headers() -> dict[str, str]:
    """Return header fields for a call to another service: the class of this request, and the time it has left."""
    fields = {}
    if (name := request_class.get()) is not None:
        fields[CLASS_HEADER] = name
    if (deadline := deadline_ns.get()) is not None:
        fields[DEADLINE_HEADER] = str(max(0, deadline - steady_ns()) // (MILLISECOND * 1_000))
    return fields
