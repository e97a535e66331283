"""The middlewares for ASGI and for WSGI, in front of apps that are plain functions."""

from __future__ import annotations

import asyncio
import io
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

from headgate.testing.edges import Answer, App, Asked, Endpoint, MiddlewareSuite, Reply, with_functions
from headgate.web.asgi import RateLimitMiddleware as Asgi
from headgate.web.wsgi import RateLimitMiddleware as Wsgi
from tests.support.adapters.loops import asked_of, pieces_of, started


def by_view(function: Any) -> Any:
    """`plan` takes the view of the request at these edges."""
    return lambda view: function(asked_of(view.method, view.path, "", ((n, v[0]) for n, v in view.headers.items())))


def options_of(app: App, adapt: Any) -> dict[str, Any]:
    """The options of an edge whose functions take its request, but for `plan`."""
    options = dict(app.options)
    plan = {"plan": by_view(options.pop("plan"))} if "plan" in options else {}
    return {**with_functions(options, adapt), **plan}


def answer_of(endpoints: Iterable[Endpoint], asked: Asked) -> Reply:
    """As a router does."""
    for endpoint in endpoints:
        if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", endpoint.path), asked.path):
            known = asked.method in (*endpoint.methods, "HEAD")
            return endpoint.handle(asked) if known else Reply(405)
    return Reply(404)


class AsgiSuite(MiddlewareSuite):
    """Any ASGI app."""

    @contextmanager
    def serve(self, app: App) -> Iterator[Any]:
        """Handlers run in threads, as they may block."""

        async def plain(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "lifespan":
                while (message := await receive())["type"] != "lifespan.shutdown":
                    await send({"type": f"{message['type']}.complete"})
                await send({"type": "lifespan.shutdown.complete"})
                return
            reply = await asyncio.to_thread(answer_of, app.endpoints, of_scope(scope))
            fields = [(name.encode(), value.encode()) for name, value in reply.headers.items()]
            await send({"type": "http.response.start", "status": reply.status, "headers": fields})
            if not isinstance(reply.body, bytes):
                async for piece in pieces_of(reply.body):
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
            body = reply.body if isinstance(reply.body, bytes) else b""
            await send({"type": "http.response.body", "body": body, "more_body": False})

        limits = Asgi(plain, app.policy, **options_of(app, lambda function: lambda scope: function(of_scope(scope))))
        with started(limits, limits) as site:
            yield site


def of_scope(scope: Any) -> Asked:
    lines = ((name.decode(), value.decode()) for name, value in scope["headers"])
    seen = scope.get("state", {}).get("rate_limit")
    return asked_of(scope["method"], scope["path"], scope["query_string"].decode(), lines, seen)


class WsgiSuite(MiddlewareSuite):
    """Any WSGI app."""

    @contextmanager
    def serve(self, app: App) -> Iterator[Any]:
        """In the thread that asks."""

        def plain(environ: Any, start_response: Any) -> Iterable[bytes]:
            reply = answer_of(app.endpoints, of_environ(environ))
            start_response(f"{reply.status} Said", list(reply.headers.items()))
            return [reply.body] if isinstance(reply.body, bytes) else reply.body

        adapted = options_of(app, lambda function: lambda environ: function(of_environ(environ)))
        limits = Wsgi(plain, app.policy, **adapted)
        with closing(limits):
            yield WsgiSite(limits, limits)


def of_environ(environ: Any) -> Asked:
    lines = ((name[5:].replace("_", "-"), value) for name, value in environ.items() if name.startswith("HTTP_"))
    seen = environ.get("headgate.rate_limit")
    return asked_of(environ["REQUEST_METHOD"], environ["PATH_INFO"], environ["QUERY_STRING"], lines, seen)


class WsgiSite:
    """A WSGI app."""

    def __init__(self, app: Any, limits: Any, *, strips: bool = False) -> None:
        """`strips` is for apps that leave it to the server to send a HEAD without a body."""
        self._app, self._strips = app, strips
        self.limits = limits

    def ask(self, method: str, path: str, headers: Mapping[str, str], client: str | None) -> Answer:
        """As a server does: an app that fails before it has answered is answered for."""
        raw, _, query = path.partition("?")
        lines = {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in headers.items()}
        environ = {
            "REQUEST_METHOD": method, "PATH_INFO": raw, "QUERY_STRING": query, "REMOTE_ADDR": client or "", **lines,
            "SERVER_NAME": "testserver", "SERVER_PORT": "80", "wsgi.url_scheme": "http",
            "wsgi.input": io.BytesIO(),
        }  # fmt: skip
        head: list[tuple[str, list[tuple[str, str]]]] = []

        def start_response(status: str, fields: list[tuple[str, str]], *_: Any) -> None:
            head[:] = [(status, fields)]

        try:
            pieces = self._app(environ, start_response)
            try:
                body = b"".join(pieces)
            finally:
                if hasattr(pieces, "close"):
                    pieces.close()
        except LookupError:  # which is what handlers of the suite raise
            return Answer(500, [], b"")
        [(status, fields)] = head
        return Answer(int(status[:3]), fields, b"" if self._strips and method == "HEAD" else body)
