"""The view of a call, for rules; its status in HTTP; and the form of a refusal in gRPC."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import grpc

from headgate.algorithms import NEVER
from headgate.engine import Decision
from headgate.errors import BudgetExhausted
from headgate.policy import Proxies, RequestView
from headgate.policy.edges import read_node
from headgate.web.disclosure import HIDDEN, Disclosure, disclosure_for
from headgate.web.headers import HeaderCodec
from headgate.web.request_limits import RequestLimits
from headgate.web.responder import Raised, RawResponse
from headgate.web.runtime import Reader

Metadata = tuple[tuple[str, Any], ...]
GRPC: Final[HeaderCodec[str]] = HeaderCodec(str.lower, str, str)
METHOD: Final = "POST"
"""The method of every call in HTTP/2."""
PUSHBACK: Final = "grpc-retry-pushback-ms"
LONGEST_DEADLINE: Final = 10.0**8
NOT_OURS: Final = ("content-type", "content-length", "cache-control")
"""Fields of an HTTP refusal that have no meaning in gRPC."""
STATUSES: Final = {
    grpc.StatusCode.OK: 200,
    grpc.StatusCode.CANCELLED: 499,
    grpc.StatusCode.UNKNOWN: 500,
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.DEADLINE_EXCEEDED: 504,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.ALREADY_EXISTS: 409,
    grpc.StatusCode.PERMISSION_DENIED: 403,
    grpc.StatusCode.UNAUTHENTICATED: 401,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
    grpc.StatusCode.FAILED_PRECONDITION: 400,
    grpc.StatusCode.ABORTED: 409,
    grpc.StatusCode.OUT_OF_RANGE: 400,
    grpc.StatusCode.UNIMPLEMENTED: 501,
    grpc.StatusCode.INTERNAL: 500,
    grpc.StatusCode.UNAVAILABLE: 503,
    grpc.StatusCode.DATA_LOSS: 500,
}
"""HTTP statuses by code, as `google.rpc.Code` maps them."""
_BY_NUMBER: Final = {code.value[0]: status for code, status in STATUSES.items()}
CODES: Final = {status: code for code, status in reversed(STATUSES.items())}
"""The first code of each HTTP status."""


class Rpc(NamedTuple):
    """One call, for the app's functions."""

    method: str
    """`/package.Service/Method`"""
    context: Any
    message: Any
    """The request; for a stream, None at the call, and then each message as it arrives."""


class Raw(NamedTuple):
    """A response that is already serialized."""

    body: bytes


class Refused(NamedTuple):
    """A refusal. If it must look like an ordinary response, `raw` is that response."""

    code: grpc.StatusCode
    details: str
    metadata: Metadata
    raw: Raw | None


def status_of(code: Any) -> int:  # noqa: ANN401
    """Return the HTTP status of a code, which may be a number."""
    number = code.value[0] if isinstance(code, grpc.StatusCode) else code
    return _BY_NUMBER.get(number, STATUSES[grpc.StatusCode.UNKNOWN])


def read_rpc(rpc: Rpc, proxies: Proxies | None) -> RequestView:
    """Return the view of a call. Binary metadata is not read."""
    headers: dict[str, list[str]] = {}
    for name, value in rpc.context.invocation_metadata() or ():
        if isinstance(value, str):
            headers.setdefault(name.lower(), []).append(value)
    view = RequestView(METHOD, rpc.method, headers, address_of(rpc.context.peer()), proxies)
    view.route = rpc.method
    view.request = rpc
    return view


def lines_of(rpc: Rpc, header: str) -> list[str]:
    """Return the lines of one header."""
    metadata = rpc.context.invocation_metadata() or ()
    return [value for name, value in metadata if name.lower() == header and isinstance(value, str)]


def remaining_of(rpc: Rpc) -> float | None:
    """Return the seconds until the deadline of the call; None if it has none, or a huge one, as servers tell then."""
    seconds: float | None = rpc.context.time_remaining()
    return None if seconds is None or seconds > LONGEST_DEADLINE else seconds


RPCS: Final = Reader(GRPC, read_rpc, lines_of, remaining_of)


@lru_cache(maxsize=4096)
def address_of(peer: str) -> str | None:
    """Return the address in `ipv4:203.0.113.9:50000` or `ipv6:%5B::1%5D:50000`; None for a socket without one."""
    kind, _, node = peer.partition(":")
    found = read_node(unquote(node)) if kind in ("ipv4", "ipv6") else None
    return None if found is None else found.text


def refusal(limits: RequestLimits[str]) -> Refused:
    """Return the refusal in the form of gRPC."""
    answer, outcome = limits.refuse("text/plain"), limits.refused[1]
    if outcome.kind == "shadow":
        status, _, body = answer
        return Refused(CODES.get(status, grpc.StatusCode.UNKNOWN), "", (), Raw(body) if status < 300 else None)
    group, decision = outcome.group, outcome.decision
    if group is None or decision is None:
        return _refused(answer, None, None)
    return _refused(answer, disclosure_for(group.limits, "", group.disclose), decision)


def refusal_for(limits: RequestLimits[str], error: Raised) -> Refused:
    """Like `refusal`, for a limiter or a budget of the app's own in a handler."""
    answer = limits.runtime.responder_now.refuse_raised(error, "text/plain", limits.request)
    if isinstance(error, BudgetExhausted):
        return _refused(answer, None, None)
    decision = error.decision
    return _refused(answer, disclosure_for(decision._asked[0]), decision)


def _refused(answer: RawResponse[str], plan: Disclosure | None, decision: Decision | None) -> Refused:
    status, fields, body = answer
    metadata = {name: value for name, value in fields if name not in NOT_OURS}
    wait = _pushback(plan, decision, metadata.get("retry-after")) if plan and decision is not None else None
    if plan is None and "retry-after" in metadata:  # of a load shedder or a budget
        wait = int(metadata["retry-after"]) * 1000
    if wait is not None:
        metadata[PUSHBACK] = str(wait)
    return Refused(
        CODES.get(status, grpc.StatusCode.RESOURCE_EXHAUSTED),
        body.decode(errors="replace").strip(),
        tuple(metadata.items()),
        None,
    )


def _pushback(plan: Disclosure, decision: Decision, retry_after: str | None) -> int | None:
    """Return milliseconds, rounded up: exact, or staggered like `Retry-After`; -1 if no wait helps."""
    seconds = plan.wait(decision, None)
    if seconds in (HIDDEN, NEVER):
        return None if seconds == HIDDEN else -1
    if retry_after is not None and int(retry_after) > seconds:
        return int(retry_after) * 1000
    return max(1, -(-decision.retry_us // 1000))
