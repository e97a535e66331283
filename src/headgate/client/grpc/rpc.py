"""A call of gRPC as a request of a budget, and its answer in the words of HTTP."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, NamedTuple

import grpc
import grpc.aio
from grpc import StatusCode

from headgate.client.budget import Budget, checked_budget
from headgate.client.deadlines import deadline, time_left
from headgate.client.outgoing import Outgoing
from headgate.client.retrying import Failure
from headgate.errors import InvalidCall

STATUSES: Final = {
    StatusCode.OK: 200,
    StatusCode.RESOURCE_EXHAUSTED: 429,
    StatusCode.UNKNOWN: 500,
    StatusCode.INTERNAL: 500,
    StatusCode.DATA_LOSS: 500,
    StatusCode.UNIMPLEMENTED: 501,
    StatusCode.UNAVAILABLE: 503,
    StatusCode.DEADLINE_EXCEEDED: 504,
}
"""The statuses by which a budget decides."""
MISTAKE: Final = 400
"""The status of all other codes: a mistake of the caller, or its own decision."""
TOO_LARGE: Final = 413
LARGER: Final = "larger than max"
"""In the details of a call with a message that is too large: RESOURCE_EXHAUSTED too, but no limit of a rate."""
NOT_CONNECTED: Final = ("failed to connect to all addresses", "errors resolving", "DNS resolution failed")
"""The start of the details of a call that was never sent; other calls with UNAVAILABLE may have reached the server."""

Call = Any
"""A call of the library, or what another interceptor has returned in its place."""
Details = Any
Message = Any
Continuation = Callable[[Details, Message], Any]


class Heard(NamedTuple):
    """The answer to one attempt, and the call for the caller."""

    call: Call
    status: int = 0
    fields: Mapping[str, Any] = {}


class NotSent(Exception):
    """No connection was made, and `call` has failed."""

    def __init__(self, call: Call) -> None:
        super().__init__()
        self.call = call


def heard(call: Call, code: StatusCode, details: str | None, *metadata: Any) -> Heard:  # noqa: ANN401
    """Return the answer in the words of HTTP; binary metadata stays bytes."""
    text = details or ""
    if code is StatusCode.UNAVAILABLE and text.startswith(NOT_CONNECTED):
        raise NotSent(call)
    status = STATUSES.get(code, MISTAKE)
    if code is StatusCode.RESOURCE_EXHAUSTED and LARGER in text:
        status = TOO_LARGE
    return Heard(call, status, {name: value for pairs in metadata for name, value in pairs or ()})


class Rpc(Outgoing):
    """One call; `begin` sends an attempt with these details."""

    method = "POST"

    def __init__(self, details: Details, begin: Callable[[Details], Any], writes: bool = False) -> None:
        self._details, self._begin = details, begin
        path = details.method
        self.path = path.decode() if isinstance(path, bytes) else path
        self.host = self.path[1:].rpartition("/")[0]
        self.headers = {name.lower(): value for name, value in details.metadata or () if isinstance(value, str)}
        if writes:  # the caller writes the messages while the call runs
            self.repeatable = self.answered = False

    def send(self) -> Any:  # noqa: ANN401
        """Send an attempt; its result is a `Heard`."""
        return self._begin(self._details_now())

    def head(self, response: Heard) -> tuple[int, Mapping[str, str]]:
        """Return the status and the metadata of an answer."""
        return response.status, response.fields

    def close(self, response: Heard) -> None:
        """Do nothing: a call that is sent again has ended."""

    def failure(self, error: Exception) -> Failure | None:
        """Return "refused" for a call that was not sent; a lost connection is a 503, as it may have been processed."""
        return "refused" if isinstance(error, NotSent) else None

    def in_time(self) -> AbstractContextManager[None]:
        """Return the block in which the timeout of the call is the deadline of all its attempts."""
        timeout = self._details.timeout
        return nullcontext() if timeout is None else deadline(max(0.0, timeout))

    def _details_now(self) -> Details:
        """Return the details of an attempt: with the time that is left, and the metadata that is added."""
        given = self._details
        more = [(name.lower(), value) for name, value in self.added.items() if name.lower() not in self.headers]
        if given.timeout is None and not more:
            return given
        timeout = None if given.timeout is None else time_left()
        kept = given.credentials, given.wait_for_ready
        pairs = *(given.metadata or ()), *more
        if isinstance(given, grpc.aio.ClientCallDetails):
            return grpc.aio.ClientCallDetails(given.method, timeout, grpc.aio.Metadata(*pairs), *kept)
        return _Details(given.method, timeout, pairs, *kept, getattr(given, "compression", None))


class _Details(
    namedtuple("_Details", ("method", "timeout", "metadata", "credentials", "wait_for_ready", "compression")),
    grpc.ClientCallDetails,
):
    """The details of an attempt in a thread."""


def checked(budget: Budget, taker: str) -> Budget:
    """Return the budget of interceptors, or raise `InvalidCall`."""
    if checked_budget(budget, taker).usage is not None:
        raise InvalidCall("usage= reads the bodies of HTTP, and a call of gRPC has none: make a Budget without usage=")
    return budget
