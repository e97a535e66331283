"""The pages `/metrics`, `/counts` and `/top` as a WSGI app, to be mounted, for instance by a `DispatcherMiddleware`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

from headgate.observe.access import FORWARDED, guarded_by, peer_itself
from headgate.observe.pages import Pages
from headgate.observe.publish import Watched
from headgate.observe.snapshot_parts import Source


def pages(*sources: Source, publish: str | Path | None = None, token: str | None = None) -> WsgiPages:
    """Return an app with the pages of these edges and limiters; see `headgate.observe.asgi.pages`."""
    may = guarded_by(token)
    return WsgiPages(Pages(Watched(sources, publish).snapshot, may))


class WsgiPages:
    """A WSGI app."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages

    def __call__(self, environ: Mapping[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
        """Answer a request."""
        method = environ["REQUEST_METHOD"]
        given = environ.get("HTTP_AUTHORIZATION", "")
        forwarded = any(f"HTTP_{name.upper().replace('-', '_')}" in environ for name in FORWARDED)
        peer = peer_itself(environ.get("REMOTE_ADDR"), environ.get("HTTP_HOST", ""), forwarded)
        status, kind, body = self._pages.answer(method, environ.get("PATH_INFO", "/"), peer, given)
        headers = [("Content-Type", kind), ("Cache-Control", "no-store"), ("Content-Length", str(len(body)))]
        start_response(f"{status} {HTTPStatus(status).phrase}", headers)
        return [b"" if method == "HEAD" else body]
