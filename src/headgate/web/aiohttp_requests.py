"""Views of aiohttp's requests, for rules."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from typing import Any, Final

from aiohttp import web

from headgate.policy import Proxies, RequestView
from headgate.policy.edges import read_address
from headgate.web.request_decision import RequestDecision
from headgate.web.request_limits import RequestLimits


@functools.lru_cache(maxsize=4096)
def address_of(peer: str | None) -> str | None:
    """Return the peer if it is an address; None on a unix socket, which has none."""
    return peer if peer and read_address(peer) is not None else None


class _View(RequestView):
    """One request. A client may name a host in the request target too, and aiohttp uses that one."""

    __slots__ = ()

    def host_lines(self) -> Sequence[str]:
        lines = super().host_lines()
        return lines if self.request.raw_path.startswith("/") else (*lines, self.request.host)


def path_of(request: web.Request) -> str:
    """Return the path as aiohttp routes it: within a segment it keeps a slash that is escaped, as in `/search/a%2Fb`.

    With that slash as one of its own, the path would have other segments than the route, and escape the route's rule.
    """
    path: str = request.path
    kept = request.rel_url.path_safe
    if "%2F" not in kept:
        return path
    resource = request.match_info.route.resource
    pattern = None if resource is None else resource.get_info().get("pattern")
    if pattern is None or pattern.fullmatch(kept.replace("%2F", "/")):  # the handler's value may have slashes
        return path
    return kept.replace("%25", "%")


def read_request(request: web.Request, path: str, proxies: Proxies | None) -> RequestView:
    """Return the view of a request; `path` is as the app routes it."""
    # aiohttp keeps the peer from the start of the connection: a client that disconnects keeps its address.
    view = _View(request.method.upper(), path, _Headers(request), address_of(request.remote), proxies)
    view.query_string = request.rel_url.raw_query_string
    resource = request.match_info.route.resource
    view.route = None if resource is None else resource.canonical
    view.request = request
    return view


def lines_of(request: web.Request, header: str) -> Sequence[str]:
    """Return the lines of one header."""
    return request.headers.getall(header, ())


_KEY: Final[Any] = web.RequestKey("headgate", RequestLimits) if hasattr(web, "RequestKey") else None
"""Made at import: aiohttp looks for the module that makes a key, and finds none in threads but the main one."""


RATE_LIMIT: Final[Any] = web.RequestKey("rate_limit", RequestDecision) if hasattr(web, "RequestKey") else "rate_limit"
"""The key under which a handler finds the decision about its request: `request[RATE_LIMIT]`."""


def request_key() -> Any:  # noqa: ANN401
    """Return a new key. aiohttp warns of string keys from 3.14 on; before that, it has no `RequestKey`."""
    return object() if _KEY is None else copy(_KEY)


class _Headers(Mapping[str, list[str]]):
    """Header lines by lower-case name, read from the request at each lookup."""

    __slots__ = ("_headers",)

    def __init__(self, request: web.Request) -> None:
        self._headers = request.headers

    def __getitem__(self, name: str) -> list[str]:
        return self._headers.getall(name)

    def __iter__(self) -> Iterator[str]:
        return iter({name.lower() for name in self._headers})

    def __len__(self) -> int:
        return len({name.lower() for name in self._headers})
