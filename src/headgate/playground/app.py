"""The playground as a WSGI app: the page and its files, the events of its world, its actions, a live endpoint.

Only the page itself may use it: requests need the Host of this server, no foreign Origin, and a token that is in the
page, so that no other web page can reach it.
"""

from __future__ import annotations

import io
import json
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.resources import files
from typing import Any, Final
from urllib.parse import parse_qs

from headgate.errors import HeadgateError, InvalidCall
from headgate.playground.logs import MOST_BYTES, Client, busiest
from headgate.playground.pages import Page, Pages
from headgate.web.wsgi import RateLimitMiddleware

Environ = dict[str, Any]
Start = Callable[..., Any]
MOST_BODY: Final = 16 * 2**10
TOKEN: Final = "__TOKEN__"  # noqa: S105 - the place of the token in the page
FILES: Final = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/style.css": ("style.css", "text/css; charset=utf-8"),
    "/script.js": ("script.js", "text/javascript; charset=utf-8"),
    "/drawing.js": ("drawing.js", "text/javascript; charset=utf-8"),
}
SAFE: Final = [
    ("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
     "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cache-Control", "no-store"),
]  # fmt: skip
LIVE: Final = {"rules": [{"name": "hello", "match": {"path": "/api/hello"}, "key": "ip", "limits": "5/30s"}]}
"""The policy of the live endpoint."""


class App:
    """The WSGI app of one run."""

    def __init__(self, hosts: Iterable[str], clients: Sequence[Client] = ()) -> None:
        self.token = secrets.token_urlsafe(24)
        self.pages = Pages()
        self.closing = threading.Event()
        self._hosts = frozenset(hosts)
        self._origins = frozenset(f"http://{host}" for host in self._hosts)
        self._clients = clients
        self._live = RateLimitMiddleware(_hello, LIVE)
        self._files = {
            path: (files(__package__).joinpath(name).read_bytes(), kind) for path, (name, kind) in FILES.items()
        }

    def __call__(self, environ: Environ, start: Start) -> Iterable[bytes]:
        """Handle one request."""
        if environ.get("HTTP_HOST") not in self._hosts or environ.get("HTTP_ORIGIN", "") not in {"", *self._origins}:
            return _answer(start, "403 Forbidden", {"error": "this server answers only its own page"})
        path, method = environ.get("PATH_INFO") or "/", environ["REQUEST_METHOD"]
        if method == "GET" and path in self._files:
            return self._file(start, path)
        if method == "GET" and path == "/api/hello":
            return self._live(environ, start)
        token = environ.get("HTTP_X_HEADGATE_TOKEN") or parse_qs(environ.get("QUERY_STRING", "")).get("token", [""])[0]
        if not secrets.compare_digest(token.encode(), self.token.encode()):
            return _answer(start, "403 Forbidden", {"error": "this page is of an earlier run: load it again"})
        try:
            if (method, path) == ("GET", "/events"):
                return self._events(start)
            if (method, path) == ("POST", "/act"):
                return _answer(start, "200 OK", {"told": self._act(environ)})
            if (method, path) == ("POST", "/log"):
                return _answer(start, "200 OK", {"told": self._log(environ)})
        except HeadgateError as error:
            return _answer(start, "400 Bad Request", {"error": str(error)})
        return _answer(start, "404 Not Found", {"error": "there is no such page"})

    def _file(self, start: Start, path: str) -> list[bytes]:
        content, kind = self._files[path]
        content = content.replace(TOKEN.encode(), self.token.encode()) if path == "/" else content
        start("200 OK", [("Content-Type", kind), ("Content-Length", str(len(content))), *SAFE])
        return [content]

    def _events(self, start: Start) -> Iterable[bytes]:
        page = self.pages.open(self._clients)
        if page is None:
            return _answer(start, "503 Service Unavailable", {"error": "too many pages are open: close one"})
        start("200 OK", [("Content-Type", "text/event-stream; charset=utf-8"), *SAFE])
        return self._stream(page)

    def _stream(self, page: Page) -> Iterator[bytes]:
        try:
            yield f"event: page\ndata: {json.dumps(page.name)}\n\n".encode()
            yield from page.events(self.closing)
        finally:
            self.pages.close(page)

    def _act(self, environ: Environ) -> object:
        try:
            asked = json.loads(_body(environ, MOST_BODY))
        except (ValueError, RecursionError):
            raise InvalidCall("the request is not JSON") from None
        if not isinstance(asked, dict):
            raise InvalidCall("the request is not a JSON object")
        return self.pages.get(asked.get("page")).act(str(asked.get("do")), asked.get("value"))

    def _log(self, environ: Environ) -> object:
        page = self.pages.get(parse_qs(environ.get("QUERY_STRING", "")).get("page", [None])[0])
        content = _body(environ, MOST_BYTES)
        page.clients = busiest(lambda: io.BytesIO(content))
        page.act("client", page.clients[0].key)
        return [client.told() for client in page.clients]


def _body(environ: Environ, most: int) -> bytes:
    try:
        length = int(environ.get("CONTENT_LENGTH") or 0)
    except ValueError:
        length = -1
    if not 0 <= length <= most:
        raise InvalidCall(f"a request has at most {most:,} bytes")
    content: bytes = environ["wsgi.input"].read(length)
    return content


def _answer(start: Start, status: str, value: object) -> list[bytes]:
    content = json.dumps(value).encode()
    start(status, [("Content-Type", "application/json"), ("Content-Length", str(len(content))), *SAFE])
    return [content]


def _hello(environ: Environ, start: Start) -> list[bytes]:
    content = b'{"hello": "world"}\n'
    start("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(content))), *SAFE[1:]])
    return [content]
