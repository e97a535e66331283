"""aiohttp's responses to requests: to those that are refused, and the end of those that are not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web

from headgate.engine import Decision
from headgate.web.asgi_sending import finish
from headgate.web.request_limits import OF_A_BODY, RequestLimits
from headgate.web.responder import RAISED, Pairs, Raised

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class RateLimitExceeded(web.HTTPException):
    """A refusal: also an `HTTPTooManyRequests`, `HTTPForbidden`, or another exception of aiohttp for its status.

    It is the whole response. If a middleware sends another response in its place, the refusal's header fields are
    added to that.
    """

    def __init__(self, fields: Pairs[str], body: bytes, decision: Decision | None) -> None:
        super().__init__(headers=[pair for pair in fields if pair[0].lower() not in OF_A_BODY])
        self.headers["Content-Type"] = dict(fields)["Content-Type"]
        self.body = body
        self.decision = decision
        self.retry_after = int(self.headers["Retry-After"]) if "Retry-After" in self.headers else None
        """The whole seconds to wait; None if no wait helps, or none is shown."""


class _TooManyRequests(RateLimitExceeded, web.HTTPTooManyRequests):
    pass


class _BadRequest(RateLimitExceeded, web.HTTPBadRequest):
    pass


class _Unauthorized(RateLimitExceeded, web.HTTPUnauthorized):
    pass


class _Forbidden(RateLimitExceeded, web.HTTPForbidden):
    pass


class _ServiceUnavailable(RateLimitExceeded, web.HTTPServiceUnavailable):
    pass


class _Shadow(web.HTTPException):
    """A refusal that looks like an ordinary response."""

    def __init__(self, status: int, fields: Pairs[str], body: bytes) -> None:
        self.status_code = status
        super().__init__()
        self.headers["Content-Type"] = dict(fields)["Content-Type"]
        self.body = body


REFUSALS: Final[dict[int, type[RateLimitExceeded]]] = {
    each.status_code: each for each in (_BadRequest, _Unauthorized, _Forbidden, _TooManyRequests, _ServiceUnavailable)
}


def refusal_of(request: web.Request, limits: RequestLimits[str]) -> RateLimitExceeded | _Shadow:
    """Return the exception for a refusal; the request's limits keep its fields for a response in its place."""
    status, fields, body = limits.deny(_accepted(request))
    outcome = limits.refused[1]
    if outcome.kind == "shadow":
        return _Shadow(status, fields, body)
    return refused(status, fields, body, outcome.decision)


def refusal_for(request: web.Request, limits: RequestLimits[str], error: Raised) -> RateLimitExceeded:
    """Return the exception for an error of a limiter or a budget of the app's own in a handler."""
    status, fields, body = limits.deny_for(error, _accepted(request), request)
    return refused(status, fields, body, getattr(error, "decision", None))


def refused(status: int, fields: Pairs[str], body: bytes, decision: Decision | None) -> RateLimitExceeded:
    """Return the exception for a status; one that aiohttp has no class for is a plain refusal with that status."""
    if status not in REFUSALS:
        REFUSALS[status] = type("RateLimitExceeded", (RateLimitExceeded,), {"status_code": status})
    return REFUSALS[status](fields, body, decision)


def _accepted(request: web.Request) -> str | None:
    return ", ".join(request.headers.getall("Accept", ())) or None


async def answer(request: web.Request, limits: RequestLimits[str], handler: Handler) -> web.StreamResponse:
    """Call the handler, and release permits after it."""
    try:
        response = await handler(request)
        limits.started(response.status)
        return response
    except web.HTTPException as error:
        limits.started(error.status)
        raise
    except RAISED as error:  # in a middleware
        raise refusal_for(request, limits, error) from error
    except asyncio.CancelledError:  # every other exception becomes a response
        await finish(limits, limits.end())
        raise
    finally:
        if limits.holds_permits:
            await finish(limits, limits.release())
