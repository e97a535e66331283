"""The client's address behind trusted proxies, without reading the rest of the request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final

from headgate.policy import Proxies

MOST: Final = 4096
LONGEST: Final = 256
"""The length up to which forwarded headers are cached; longer ones are read each time."""

Lines = Callable[[Any, str], Sequence[str]]
"""Returns the lines of one header, by its lower-case name, from the framework's request."""


class Clients:
    """`clients(request, peer)` is the address of the client. The same peer and header are looked up once."""

    def __init__(self, proxies: Proxies, lines: Lines) -> None:
        self._header = proxies.header
        self._lines = lines

        def find(peer: str | None, *lines: str) -> str | None:
            return (proxies.client(peer, lines, lines) or peer) if proxies.trusts(peer) else peer

        self._find = find
        self._known = lru_cache(MOST)(find)

    def __call__(self, request: Any, peer: str | None) -> str | None:  # noqa: ANN401
        """Return the same address as `RequestView.client`."""
        lines = self._lines(request, self._header)
        if len(lines) == 1 and len(lines[0]) <= LONGEST:
            return self._known(peer, lines[0])
        return self._find(peer, *lines)
