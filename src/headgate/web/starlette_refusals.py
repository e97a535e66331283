"""Starlette's responses to requests that are refused at an endpoint."""

from __future__ import annotations

import inspect
from typing import Any, Final

from starlette.exceptions import HTTPException, WebSocketException
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.websockets import WebSocket, WebSocketState

from headgate.engine import Decision
from headgate.errors import BudgetExhausted
from headgate.web.asgi import REQUEST_LIMITS
from headgate.web.asgi_sending import BUSY, POLICY_VIOLATION, TRY_AGAIN_LATER
from headgate.web.request_limits import OF_A_BODY
from headgate.web.responder import RAISED, RawResponse

HANDLERS: Final = "starlette.exception_handlers"
"""The key in the scope of the nearest app's exception handlers."""


class RateLimitExceeded(HTTPException):
    """A refusal at an endpoint. `response` is all of it; `headers` are its fields, for the app's own handler."""

    def __init__(
        self, response: Response, fields: dict[str, str], title: str, decision: Decision | None = None
    ) -> None:
        super().__init__(response.status_code, title, fields)
        self.response = response
        self.decision = decision
        self.retry_after = int(response.headers["retry-after"]) if "retry-after" in response.headers else None
        """The whole seconds to wait; None if no wait helps, or none is shown."""


class WebSocketRateLimited(WebSocketException):
    """A refusal at the endpoint of a websocket."""

    def __init__(self, response: Response) -> None:
        super().__init__(POLICY_VIOLATION, "rate limited")
        self.response = response


def accepted(connection: HTTPConnection) -> str | None:
    """Return the client's `Accept`, or None."""
    return ", ".join(connection.headers.getlist("accept")) or None


def refusal_of(
    connection: HTTPConnection, answer: RawResponse[bytes], decision: Decision | None
) -> RateLimitExceeded | WebSocketRateLimited:
    """Return the exception for a refusal."""
    status, fields, body = answer
    response = Response(body, status)
    response.raw_headers = fields
    kind = WebSocketRateLimited if connection.scope["type"] == "websocket" else RateLimitExceeded
    if HANDLERS in connection.scope:  # a mounted app has its own handlers, unknown to RateLimits
        connection.scope[HANDLERS][0].setdefault(kind, send_refusal)
    if kind is WebSocketRateLimited:
        return WebSocketRateLimited(response)
    told = {name.decode("latin-1"): value.decode("latin-1") for name, value in fields}
    kept = {name: value for name, value in told.items() if name not in OF_A_BODY}  # a handler has a body of its own
    return RateLimitExceeded(response, kept, "Too Many Requests" if status == 429 else "Refused", decision)


async def send_refusal(connection: HTTPConnection, error: Exception) -> Response | None:
    """Send a refusal as every other edge does: the handler of both exceptions, unless the app has its own."""
    assert isinstance(error, RateLimitExceeded | WebSocketRateLimited)  # noqa: S101 - the handler of these
    if not isinstance(connection, WebSocket):
        return error.response
    opening = connection.application_state is WebSocketState.CONNECTING
    if opening and "websocket.http.response" in (connection.scope.get("extensions") or {}):
        await connection.send_denial_response(error.response)
    elif error.response.status_code == BUSY:
        await connection.close(TRY_AGAIN_LATER, "try again later")
    else:
        await connection.close(POLICY_VIOLATION, "rate limited")
    return None


async def answer_raised(connection: HTTPConnection, error: Exception) -> Any:  # noqa: ANN401
    """Answer an error of a limiter or a budget of the app's own in an endpoint like one of the endpoint's limits."""
    assert isinstance(error, RAISED)  # noqa: S101 - the handler of these
    request_limits = connection.scope.get(REQUEST_LIMITS)
    if request_limits is None:
        raise error
    answer = request_limits.deny_for(error, accepted(connection), connection.scope)
    if isinstance(error, BudgetExhausted):  # no refusal of a client, so handlers of refusals are not called
        return await send_refusal(connection, refusal_of(connection, answer, None))
    refusal = refusal_of(connection, answer, error.decision)
    answered = connection.scope[HANDLERS][0][type(refusal)](connection, refusal)
    return await answered if inspect.isawaitable(answered) else answered
