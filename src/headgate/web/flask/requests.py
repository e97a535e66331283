"""Flask's requests and responses: what is kept with one, what a no becomes, and which header fields are added."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from flask import Flask, Request, Response, current_app, request
from werkzeug.datastructures import Headers
from werkzeug.exceptions import TooManyRequests, default_exceptions

from headgate.engine import Decision
from headgate.policy import Proxies, RequestView
from headgate.web.flask.case import No
from headgate.web.headers import exposed_fields, merge_exposed
from headgate.web.runtime import Runtime
from headgate.web.wsgi import read_environ

CASE: Final = "headgate_case"
"""What was decided about a request, in its `__dict__`: `g` may be there before it, and after it."""
current_request: Callable[[], Request] = request._get_current_object  # type: ignore[attr-defined]
current_flask: Callable[[], Flask] = current_app._get_current_object  # type: ignore[attr-defined]
ORIGIN: Final = "access-control-allow-origin"
EXPOSE: Final = "Access-Control-Expose-Headers"


class RateLimitExceeded(TooManyRequests):
    """A no. `response` is the whole refusal; where the app has a handler, its fields are added to what that answers."""

    def __init__(self, response: Response, decision: Decision | None) -> None:
        super().__init__(response=response, retry_after=response.headers.get("Retry-After", type=int))
        self.decision = decision


class AskedView(RequestView):
    """A request whose user the app knows: looked up when a rule asks, as who reads the session makes responses vary."""

    __slots__ = ("_user", "user_of")

    _user: Any
    user_of: Callable[[], str | None]

    @property
    def user(self) -> str | None:
        """Who it is."""
        if self._user is None:
            self._user = current_app.ensure_sync(self.user_of)()
        user: str | None = self._user
        return user

    @user.setter
    def user(self, given: str | None) -> None:
        self._user = given


def reader(user_of: Callable[[], str | None] | None) -> Callable[[Any, Proxies | None], RequestView]:
    """How an environ is read; who it is, is as the app says or else as the server does."""
    if user_of is None:
        return read_environ

    def read(environ: Any, proxies: Proxies | None) -> RequestView:  # noqa: ANN401
        raw = read_environ(environ, proxies)
        view = AskedView(raw.method, raw.path, raw.headers, raw.peer, proxies)
        view.query_string = raw.query_string
        view.user_of = user_of
        return view

    return read


def refuse(no: No) -> Response:
    """Send a no in Flask's way, where error handlers have a say; but a shadow as it is."""
    if no.status == RateLimitExceeded.code and not no.shadow:
        raise exceeded(no)
    response = current_app.response_class(no.body, no.status, no.fields)
    if no.shadow:
        return response
    raise default_exceptions[no.status](response=response)


def exceeded(no: No) -> RateLimitExceeded:
    """A no as it is raised."""
    return RateLimitExceeded(current_app.response_class(no.body, no.status, no.fields), no.decision)


def tell(headers: Headers, fields: Sequence[tuple[str, str]], instead: bool, runtime: Runtime[str]) -> None:
    """Add header fields; `instead` of those that are there already, as an app may send one response every time."""
    there = {name.lower() for name, _ in headers}
    for name, value in fields:
        if name.lower() not in there:
            headers.add(name, value)
        elif instead:
            headers[name] = value
    if ORIGIN in there and fields:
        ours = exposed_fields(runtime.policy.headers)
        headers[EXPOSE] = merge_exposed(",".join(headers.getlist(EXPOSE)), ours)
