"""The shortcuts by which requests to endpoints are decided, and the responders of endpoints that were requested."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import AnyStr, Generic

from headgate.web.endpoint import EndpointLimit
from headgate.web.responder import Responder, Shortcut


class EndpointShortcuts(dict[tuple[tuple[EndpointLimit, ...], str, str], Shortcut], Generic[AnyStr]):
    """The shortcuts of requests to endpoints under one policy. Their number is bounded by the routes of the app."""

    def __init__(
        self, open_at: Callable[[tuple[EndpointLimit, ...], str], Responder[AnyStr]], has_fast_paths: bool
    ) -> None:
        super().__init__()
        self._open_at: Callable[[tuple[EndpointLimit, ...], str], Responder[AnyStr]] = open_at
        self._has_fast_paths = has_fast_paths
        self._responders: dict[tuple[tuple[EndpointLimit, ...], str], Responder[AnyStr]] = {}

    def responder(self, limits: tuple[EndpointLimit, ...], route: str) -> Responder[AnyStr]:
        """Return the responder of an endpoint, which is made once."""
        responder = self._responders.get((limits, route))
        if responder is None:
            responder = self._responders[limits, route] = self._open_at(limits, route)
        return responder

    def opened(self) -> Iterator[tuple[str, Responder[AnyStr]]]:
        """Yield the route and the responder of each endpoint that was requested so far."""
        return ((route, responder) for (_, route), responder in list(self._responders.items()))

    def __missing__(self, asked: tuple[tuple[EndpointLimit, ...], str, str]) -> Shortcut:
        limits, route, method = asked
        has_fast_path = self._has_fast_paths and route != ""  # without a route, a part of the key is missing
        found = self[asked] = has_fast_path and self.responder(limits, route).shortcut_at(method, route)
        return found
