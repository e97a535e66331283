"""The original request: what a client sent to a proxy, as the proxy tells it, or as a question describes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final
from urllib.parse import unquote

from headgate.policy import Proxies, RequestView
from headgate.policy.edges import Unclear
from headgate.web import ASGI, Reader, ScopeHeaders

Headers = list[tuple[bytes, bytes]]
METHOD: Final = b"x-forwarded-method"
URI: Final = b"x-forwarded-uri"
HOST: Final = b"x-forwarded-host"
ONCE: Final = (METHOD, URI, HOST)
"""Headers that a proxy sends in one line; two different lines are two different requests."""
METHOD_PATTERN: Final = "[!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}"
"""A token of HTTP, of a length that every method has."""
TARGET_PATTERN: Final = r"^(/|\*$|\*\?|[Hh][Tt][Tt][Pp][Ss]?://)"
"""A target of HTTP that `read_uri` reads: a path, a URL, or the * of OPTIONS."""
LONGEST_KNOWN: Final = 256
"""Targets up to this length are read once; there are few of them on most sites."""
DOTS: Final = frozenset({".", ".."})


class OriginalRequest:
    """A request to rule on. `peer` is the proxy that tells of it, or the client itself if no proxy is in between."""

    __slots__ = ("headers", "host", "method", "path", "peer", "plan", "proxies", "query", "user")

    def __init__(
        self,
        method: str,
        path: str,
        query: bytes | str,
        headers: Headers,
        peer: str | None,
        proxies: Proxies | None = None,
        host: bytes | None = None,
    ) -> None:
        self.method = method
        self.path = path
        self.query = query
        self.headers = headers
        self.peer = peer
        self.proxies = proxies
        self.host = host
        """The host that the client asked for, if the proxy tells it."""
        self.user: str | None = None
        self.plan: str | None = None


def view_of(request: OriginalRequest, proxies: Proxies | None) -> RequestView:
    """Return the view of an original request, for rules."""
    headers = request.headers
    if request.host is not None:
        headers = [pair for pair in headers if pair[0] != b"host"]
        headers.append((b"host", request.host))
    view = RequestView(request.method, request.path, ScopeHeaders(headers), request.peer, request.proxies)
    view.query_string = request.query
    view.user, view.plan = request.user, request.plan
    if has_dots(request.path):
        view.unclear = Unclear("path", "has the segments . or .., which servers read differently")
    return view


def has_dots(path: str) -> bool:
    """Whether a proxy may pass on another path than this one: nginx does so, depending on its `proxy_pass`.

    Whichever of both paths a rule reads, an app may get the other. Browsers and libraries never send such a path.
    """
    return "/." in path and not DOTS.isdisjoint(path.split("/"))


def lines_of(fields: Mapping[bytes, bytes], header: str) -> Sequence[str]:
    """Return the line of a header, where each is known to have one."""
    line = fields.get(header.encode("latin-1"))
    return () if line is None else (line.decode("latin-1"),)


ORIGINALS: Final = Reader(ASGI, view_of, lambda request, header: lines_of(dict(request.headers), header))


def read_uri(uri: bytes) -> tuple[str, bytes] | None:
    """Return path and query of a request's target, as a server would read them; None if it has no path."""
    return _known(uri) if len(uri) <= LONGEST_KNOWN else _read(uri)


def _read(uri: bytes) -> tuple[str, bytes] | None:
    raw, _, query = uri.partition(b"?")
    if not raw.startswith(b"/"):  # a client may send its request in absolute form
        scheme, slashes, rest = raw.partition(b"://")
        if not slashes or scheme.lower() not in (b"http", b"https"):
            return ("*", query) if raw == b"*" else None
        raw = b"/" + rest.partition(b"/")[2]
    path = raw.decode("utf-8", "replace")
    return (unquote(path) if "%" in path else path), query


_known: Final = lru_cache(4096)(_read)
