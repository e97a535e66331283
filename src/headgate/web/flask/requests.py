"""Flask's requests and responses: their views, the response to a refusal, and the header fields that are added."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from flask import Flask, Request, Response, current_app, request
from werkzeug.exceptions import HTTPException, TooManyRequests, default_exceptions

from headgate.engine import Decision
from headgate.policy import Proxies, RequestView
from headgate.steps import run
from headgate.web.clients import AskedView, UserOf
from headgate.web.headers import WSGI
from headgate.web.request_decision import RequestDecision
from headgate.web.request_limits import RequestLimits
from headgate.web.responder import RawResponse
from headgate.web.runtime import Reader
from headgate.web.wsgi import Counted, StartResponse, lines_of, read_environ, variable_of

LIMITED: Final = "headgate_limits"
"""The attribute of a request that holds its limits; not one of `g`, which may outlive the request."""
current_request: Callable[[], Request] = request._get_current_object  # type: ignore[attr-defined]
current_flask: Callable[[], Flask] = current_app._get_current_object  # type: ignore[attr-defined]


class RateLimitExceeded(TooManyRequests):
    """A refusal. `response` is all of it; if the app has a handler, its fields are added to that response."""

    def __init__(self, response: Response, decision: Decision | None) -> None:
        super().__init__(response=response, retry_after=response.headers.get("Retry-After", type=int))
        self.decision = decision


class FlaskLimits(RequestLimits[str]):
    """The limits of one request, which add its header fields to the response on its way to the server."""

    start_response: StartResponse
    """The server's function."""

    def start(self, status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:  # noqa: ANN401
        """Settle the charges by a response, and start it with our fields: the `start_response` that the app gets."""
        if self.follows:
            self._settle(status, headers)
        if self.fast and self.denial is None:  # most responses
            shortcut, decision = self.fast
            told = shortcut.with_fields(headers, decision)
        else:
            told = self.with_fields(headers)
        return self.start_response(status, told) if exc_info is None else self.start_response(status, told, exc_info)

    def _settle(self, status: str, headers: Sequence[tuple[str, str]]) -> None:
        """Settle the charges by a response; one whose length is not known is produced while it is sent."""
        said = {name.lower(): value for name, value in headers}
        run(self.after(int(status[:3]), said.get))
        self.streams = self.holds_permits and "content-length" not in said


def reader(user_of: UserOf | None) -> Reader[str]:
    """Return a reader of environs; the user comes from the app's function, or else from the server."""

    def read(environ: Any, proxies: Proxies | None) -> RequestView:  # noqa: ANN401
        view = read_environ(environ, proxies)
        if user_of is not None:
            raw, view = view, AskedView(view.method, view.path, view.headers, view.peer, proxies)
            view.query_string = raw.query_string
            view.ask_for_user(user_of)
        rule = current_request().url_rule
        view.route = None if rule is None else rule.rule
        return view

    return Reader(WSGI, read, lines_of, variable_of=variable_of)


def with_decision(globals_class: type[Any]) -> type[Any]:
    """Return a class of `g` with `g.rate_limit`, which is made when a view reads it."""

    def rate_limit(self: object) -> RequestDecision:
        limits = getattr(current_request(), LIMITED, None)
        seen = RequestDecision()
        seen.limits = limits
        if limits is None:
            seen.only = ()
        return seen

    return type(globals_class.__name__, (globals_class,), {"rate_limit": property(rate_limit)})


def refuse(limits: FlaskLimits, environ: Mapping[str, Any]) -> Response:
    """Raise a refusal, so that the app's error handlers apply; return a shadow response unchanged."""
    answer = limits.deny(environ.get("HTTP_ACCEPT"))
    outcome = limits.refused[1]
    if outcome.kind != "shadow":
        raise exceeded(answer, outcome.decision)
    status, fields, body = answer
    return current_app.response_class(body, status, fields)


def exceeded(answer: RawResponse[str], decision: Decision | None) -> HTTPException:
    """Return the exception for a refusal: of Werkzeug's own class, unless it is a 429."""
    status, fields, body = answer
    response = current_app.response_class(body, status, fields)
    if status == RateLimitExceeded.code:
        return RateLimitExceeded(response, decision)
    return default_exceptions.get(status, HTTPException)(response=response)


def limits_by_hand(asked: Request, limits_of: type[FlaskLimits]) -> FlaskLimits:
    """Return the limits of a request that no server has sent, as in a `test_request_context`; they end with it."""
    limits, close = limits_of(), asked.close

    def end() -> None:
        close()
        if limits.follows:
            run(limits.end())

    asked.close = end  # type: ignore[method-assign]
    return limits


def ended(pieces: Iterable[bytes], limits: FlaskLimits) -> Iterable[bytes]:
    """End a request with its response, or when that has been sent, if it is produced meanwhile."""
    if limits.streams:
        return Counted(pieces, limits)
    run(limits.end())
    return pieces
