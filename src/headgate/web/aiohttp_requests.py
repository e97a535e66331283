"""aiohttp's requests as policies see them."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from typing import Any, Final

from aiohttp import web

from headgate.policy import Proxies, RequestView
from headgate.policy.address import read_address
from headgate.web.request_limits import RequestLimits


@functools.lru_cache(maxsize=4096)
def address_of(peer: str | None) -> str | None:
    """A peer that has one: on a unix socket nobody does."""
    return peer if peer and read_address(peer) is not None else None


class _View(RequestView):
    """One request. A client may name a host in its target too, and aiohttp believes that one."""

    __slots__ = ()

    def host_lines(self) -> Sequence[str]:
        lines = super().host_lines()
        return lines if self.request.raw_path.startswith("/") else (*lines, self.request.host)


def read_request(request: web.Request, path: str, proxies: Proxies | None) -> RequestView:
    """A request as policies see it; `path` is as the app routes it."""
    # The peer is known from when the connection was made: a client that went away does not become nobody.
    view = _View(request.method.upper(), path, _Headers(request), address_of(request.remote), proxies)
    view.query_string = request.rel_url.raw_query_string
    resource = request.match_info.route.resource
    view.route = None if resource is None else resource.canonical
    view.request = request
    return view


def lines_of(request: web.Request, header: str) -> Sequence[str]:
    """The lines of one header."""
    return request.headers.getall(header, ())


_KEY: Final[Any] = web.RequestKey("headgate", RequestLimits) if hasattr(web, "RequestKey") else None
"""Made here, as aiohttp looks for the module that makes a key, and in other threads than the main one finds none."""


def request_key() -> Any:  # noqa: ANN401
    """A key of its own. aiohttp from 3.14 on warns of keys that are words; before it there are no others."""
    return object() if _KEY is None else copy(_KEY)


class _Headers(Mapping[str, list[str]]):
    """Header lines by lower-case name, straight from the request."""

    __slots__ = ("_headers",)

    def __init__(self, request: web.Request) -> None:
        self._headers = request.headers

    def __getitem__(self, name: str) -> list[str]:
        return self._headers.getall(name)

    def __iter__(self) -> Iterator[str]:
        return iter({name.lower() for name in self._headers})

    def __len__(self) -> int:
        return len({name.lower() for name in self._headers})
