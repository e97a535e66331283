"""WSGI: one line in front of Flask, Django, Bottle, Pyramid or any other WSGI app.

app = RateLimitMiddleware(app, policy="policy.yaml", store="shared:///dev/shm/api")
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import Any, Unpack

from headgate.policy import Proxies, RequestView
from headgate.policy.fast_path import Keys
from headgate.policy.key import client_key
from headgate.policy.steps import run
from headgate.waiting.sleep import sleep_until
from headgate.web.headers import WSGI
from headgate.web.request_limits import Entry, RequestLimits
from headgate.web.responder import Responder, decide
from headgate.web.runtime import Options, PolicyGiven, Runtime
from headgate.web.unreached import routes_below

Environ = dict[str, Any]
StartResponse = Callable[..., Any]
App = Callable[[Environ, StartResponse], Iterable[bytes]]


class RateLimitMiddleware:
    """A policy in front of a WSGI app. `user` and `claims` take the environ; without `user` it is `REMOTE_USER`."""

    def __init__(self, app: App, policy: PolicyGiven, **options: Unpack[Options]) -> None:
        self.app = app
        self.runtime: Runtime[str] = Runtime(policy, WSGI, read_environ, awaited=False, **options)
        self.runtime.routes = lambda: routes_below(self.app)

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """One request."""
        runtime = self.runtime
        if runtime.looks:
            runtime.look(environ)
        found = runtime.fast_paths[environ["REQUEST_METHOD"], path_of(environ)]
        if found is not None:
            responder, fast_path, fields = found
            if fast_path is None:
                return self.app(environ, start_response)
            keys: Keys | None
            if fast_path.by_address and runtime.proxies is None:
                peer = environ.get("REMOTE_ADDR")
                keys = client_key(peer) if peer else None
            else:
                keys = fast_path.keys(runtime.view(environ))
            decision = decide(fast_path, keys)
            if decision is not None:
                if decision.allowed:
                    return self.app(environ, _adding(responder, fields(decision), start_response))
                answer = responder.refuse_in_fast_path(fast_path, decision, environ.get("HTTP_ACCEPT"))
                return _answer(answer, environ, start_response)
        return self._decided(environ, start_response)

    def _decided(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """A request that has to be looked at."""
        runtime = self.runtime
        view = runtime.view(environ)
        responder = runtime.responder(view)
        outcome = run(responder.compiled.before(view))
        if outcome.kind != "pass":
            return _answer(responder.refuse(outcome, environ.get("HTTP_ACCEPT")), environ, start_response)
        request_limits = RequestLimits(runtime, Entry(responder, outcome.group, outcome.decision, outcome.charges))
        if outcome.delay_us:
            hold(request_limits, outcome.delay_us)
        if request_limits.follows:
            return self._count(environ, start_response, request_limits)
        return self.app(environ, _adding(responder, request_limits.fields, start_response))

    def _count(
        self, environ: Environ, start_response: StartResponse, request_limits: RequestLimits[str]
    ) -> Iterable[bytes]:
        """Call the app, and count what its response says; the fields tell what is left after that."""

        def start(status: str, headers: list[tuple[str, str]], *exc_info: Any) -> Any:  # noqa: ANN401
            said = {name.lower(): value for name, value in headers}
            run(request_limits.after(int(status[:3]), said.get))
            return start_response(
                status, request_limits.responder.with_fields(headers, request_limits.fields), *exc_info
            )

        try:
            return _Counted(self.app(environ, start), request_limits)
        except BaseException:
            run(request_limits.end())
            raise


def hold(request_limits: RequestLimits[str], delay_us: int) -> None:
    """A rule that delays: wait for the request's place in the queue."""
    clock = request_limits.runtime.clock
    try:
        sleep_until(clock, clock.now_us() + delay_us)
    except BaseException:
        run(request_limits.release())
        raise


def read_environ(environ: Environ, proxies: Proxies | None) -> RequestView:
    """An environ as policies see it."""
    peer = environ.get("REMOTE_ADDR") or None
    method = environ["REQUEST_METHOD"].upper()  # as Werkzeug and Django read it
    view = RequestView(method, path_of(environ), _Headers(environ), peer, proxies)
    view.query_string = environ.get("QUERY_STRING", "")
    view.user = environ.get("REMOTE_USER")
    return view


def _adding(responder: Responder[str], fields: list[tuple[str, str]], start_response: StartResponse) -> StartResponse:
    """Say in the response how much is left."""
    if not fields:
        return start_response

    def start(status: str, headers: list[tuple[str, str]], *exc_info: Any) -> Any:  # noqa: ANN401
        return start_response(status, responder.with_fields(headers, fields), *exc_info)

    return start


def _answer(
    response: tuple[int, list[tuple[str, str]], bytes], environ: Environ, start_response: StartResponse
) -> Iterable[bytes]:
    status, headers, body = response
    start_response(_line(status), headers)
    return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]


class _Counted:
    """An app's pieces as they are; one that ends without a response is counted too."""

    def __init__(self, pieces: Iterable[bytes], request_limits: RequestLimits[str]) -> None:
        self._pieces, self._request_limits = pieces, request_limits

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._pieces
        finally:
            run(self._request_limits.end())

    def close(self) -> None:
        """What the app wants closed."""
        try:
            close = getattr(self._pieces, "close", None)
            if close is not None:
                close()
        finally:
            run(self._request_limits.end())


def path_of(environ: Environ) -> str:
    """The path as the app routes it, below what it is mounted at; WSGI hands over its bytes as latin-1."""
    raw: str = environ.get("PATH_INFO") or "/"
    return raw if raw.isascii() else raw.encode("latin-1", "replace").decode("utf-8", "replace")


def _line(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"{status} Refused"


class _Headers(Mapping[str, list[str]]):
    """Headers by lower-case name, straight from the environ."""

    __slots__ = ("_environ",)

    def __init__(self, environ: Environ) -> None:
        self._environ = environ

    def __getitem__(self, name: str) -> list[str]:
        key = name.upper().replace("-", "_")
        value = self._environ.get(key if key in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{key}")
        if value is None:
            raise KeyError(name)
        return [value]

    def __iter__(self) -> Iterator[str]:
        return (key[5:].lower().replace("_", "-") for key in self._environ if key.startswith("HTTP_"))

    def __len__(self) -> int:
        return sum(key.startswith("HTTP_") for key in self._environ)
