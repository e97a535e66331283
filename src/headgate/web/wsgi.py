"""WSGI: one line in front of Flask, Django, Bottle, Pyramid or any other WSGI app.

app = RateLimitMiddleware(app, policy="policy.yaml", store="shared:///dev/shm/api")
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Final, Unpack

from headgate.policy import Proxies, RequestView
from headgate.steps import run
from headgate.web.edge import Edge
from headgate.web.headers import WSGI
from headgate.web.options import Options, PolicyGiven, WebOptions
from headgate.web.request_decision import RequestDecision, decision_of
from headgate.web.request_limits import RequestLimits, limits_of
from headgate.web.responder import Pairs, RawResponse, Responder
from headgate.web.runtime import Reader, Runtime
from headgate.web.unmatched_rules import routes_below

Environ = dict[str, Any]
StartResponse = Callable[..., Any]
App = Callable[[Environ, StartResponse], Iterable[bytes]]
RATE_LIMIT: Final = "headgate.rate_limit"
"""The key in an environ under which the app finds the decision about the request."""


class RateLimitMiddleware(Edge[str]):
    """A policy in front of a WSGI app. `user` and `claims` take the environ; the default user is `REMOTE_USER`."""

    def __init__(self, app: App, policy: PolicyGiven, **options: Unpack[Options]) -> None:
        self.app = app
        self._runtime: Runtime[str] = Runtime(policy, ENVIRONS, WebOptions(**options), awaited=False)
        self._runtime.routes = lambda: routes_below(self.app)
        self._limits = limits_of(self._runtime)
        self._decision = decision_of(self._limits, RequestDecision)
        self._without_limits = self._decision()
        """The decision about requests that no limit applies to."""

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Handle one request."""
        runtime, view = self._runtime, None
        if (shortcuts := runtime.front) is None:
            view, shortcuts = runtime.look(environ) if runtime.looks else None, runtime.fast_paths
        try:
            path: str = environ["PATH_INFO"] or "/"
        except KeyError:  # servers may leave it out, and few do
            path = "/"
        if not path.isascii():
            path = path_of(environ)
        shortcut = shortcuts[environ["REQUEST_METHOD"]][path]
        if shortcut is True:  # no rule applies
            environ["headgate.rate_limit"] = self._without_limits
            return self.app(environ, start_response)
        if shortcut is not False:  # decided at once: no limits of the request have to be kept
            if shortcut.by_address:
                peer = environ.get("REMOTE_ADDR")
                decision = shortcut.decide(peer) if runtime.clients is None else shortcut.decide_request(environ, peer)
            else:
                view = view or runtime.view(environ)
                decision = shortcut.decide_by(view)
            if decision is not None:
                if decision.allowed:
                    seen = environ["headgate.rate_limit"] = self._decision()
                    seen.shortcut, seen.decided = shortcut, decision
                    if shortcut.writes_fields:
                        start_response = _telling(shortcut.responder, shortcut.write_fields(decision), start_response)
                    return self.app(environ, start_response)
                answer = shortcut.responder.refuse_fast(shortcut, decision, environ.get("HTTP_ACCEPT"), environ)
                return _answer(answer, environ, start_response)
        return self._admit(environ, start_response, path, view)

    def _admit(
        self, environ: Environ, start_response: StartResponse, path: str, view: RequestView | None
    ) -> Iterable[bytes]:
        """Decide on a request whose limits have to be kept."""
        limits = self._limits()
        limits.view = view
        admitted = limits.admit(
            environ, environ["REQUEST_METHOD"], path, environ.get("REMOTE_ADDR"), None, shortcut=False
        )
        if not isinstance(admitted, bool):
            admitted = run(admitted)
        if not admitted:
            return _answer(limits.refuse(environ.get("HTTP_ACCEPT")), environ, start_response)
        seen = environ[RATE_LIMIT] = self._decision()
        seen.limits = limits
        if limits.follows:
            return self._count(environ, start_response, limits)
        fields = limits.fields
        return self.app(environ, _telling(limits.responder, fields, start_response) if fields else start_response)

    def _count(self, environ: Environ, start_response: StartResponse, limits: RequestLimits[str]) -> Iterable[bytes]:
        """Call the app, and settle the charges by its response; the fields show what is left after that."""

        def start(status: str, headers: list[tuple[str, str]], *exc_info: Any) -> Any:  # noqa: ANN401
            said = {name.lower(): value for name, value in headers}
            run(limits.after(int(status[:3]), said.get))
            return start_response(status, limits.with_fields(headers), *exc_info)

        try:
            return Counted(self.app(environ, start), limits)
        except BaseException:
            run(limits.end())
            raise


def read_environ(environ: Environ, proxies: Proxies | None) -> RequestView:
    """Return the view of an environ, for rules."""
    peer = environ.get("REMOTE_ADDR") or None
    method = environ["REQUEST_METHOD"].upper()  # as Werkzeug and Django read it
    view = RequestView(method, path_of(environ), _Headers(environ), peer, proxies)
    view.query_string = environ.get("QUERY_STRING", "")
    view.user = environ.get("REMOTE_USER")
    return view


def lines_of(environ: Environ, header: str) -> list[str]:
    """Return the lines of one header; servers have joined them into one."""
    value = environ.get(variable_of(header))
    return [] if value is None else [value]


@lru_cache(maxsize=1024)
def variable_of(header: str) -> str:
    """Return the name of a header in an environ."""
    name = header.upper().replace("-", "_")
    return name if name in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{name}"


def path_of(environ: Environ) -> str:
    """Return the path as the app routes it, below its mount; WSGI passes its bytes as latin-1."""
    raw: str = environ.get("PATH_INFO") or "/"
    return raw if raw.isascii() else raw.encode("latin-1", "replace").decode("utf-8", "replace")


ENVIRONS: Final = Reader(WSGI, read_environ, lines_of, variable_of=variable_of)


def _telling(responder: Responder[str], fields: Pairs[str], start_response: StartResponse) -> StartResponse:
    """Add the fields of a decision to the response, for charges that no response changes."""

    def start(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:  # noqa: ANN401
        told = responder.with_fields(headers, fields)
        return start_response(status, told) if exc_info is None else start_response(status, told, exc_info)

    return start


def _answer(response: RawResponse[str], environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
    status, headers, body = response
    start_response(_line(status), headers)
    return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]


class Counted:
    """The unchanged pieces of an app's response; ends the request after the last, even if none was sent."""

    def __init__(self, pieces: Iterable[bytes], limits: RequestLimits[str]) -> None:
        self._pieces, self._limits = pieces, limits

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._pieces
        finally:
            run(self._limits.end())

    def close(self) -> None:
        """Close the app's response, and end the request."""
        try:
            close = getattr(self._pieces, "close", None)
            if close is not None:
                close()
        finally:
            run(self._limits.end())


def _line(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"{status} Refused"


class _Headers(Mapping[str, list[str]]):
    """Headers by lower-case name, read from the environ at each lookup."""

    __slots__ = ("_environ",)

    def __init__(self, environ: Environ) -> None:
        self._environ = environ

    def __getitem__(self, name: str) -> list[str]:
        value = self._environ.get(variable_of(name))
        if value is None:
            raise KeyError(name)
        return [value]

    def __iter__(self) -> Iterator[str]:
        return (key[5:].lower().replace("_", "-") for key in self._environ if key.startswith("HTTP_"))

    def __len__(self) -> int:
        return sum(key.startswith("HTTP_") for key in self._environ)
