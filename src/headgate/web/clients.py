"""The client of a request: its address behind trusted proxies, without reading the rest; and its user, from the app."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from headgate.policy import Proxies, RequestView

MOST: Final = 4096
LONGEST: Final = 256
"""The length up to which forwarded headers are cached; longer ones are read each time."""

_UNKNOWN: Final = object()
UserOf = Callable[[Any], str | None]
"""Returns the user of a framework's request."""
Lines = Callable[[Any, str], Sequence[str]]
"""Returns the lines of one header, by its lower-case name, from the framework's request."""
ClientOf = Callable[[Any, str | None], str | None]
"""Returns the address of the client, from the framework's request and its peer."""


class Clients:
    """`clients(request, peer)` is the address of the client. The same peer and header are looked up once."""

    def __init__(self, proxies: Proxies, lines: Lines) -> None:
        self._header = proxies.header
        self._lines = lines
        self._find = _finder(proxies)
        self._known = lru_cache(MOST)(self._find)

    def __call__(self, request: Any, peer: str | None) -> str | None:  # noqa: ANN401
        """Return the same address as `RequestView.client`."""
        lines = self._lines(request, self._header)
        if len(lines) == 1 and len(lines[0]) <= LONGEST:
            return self._known(peer, lines[0])
        return self._find(peer, *lines)


def _finder(proxies: Proxies) -> Callable[..., str | None]:
    def find(peer: str | None, *lines: str) -> str | None:
        return (proxies.client(peer, lines) or peer) if proxies.trusts(peer) else peer

    return find


def _in_environs(proxies: Proxies, variable: str) -> ClientOf:
    """Return `Clients` for servers that have joined the lines of the header, as this variable."""
    find = _finder(proxies)
    known = lru_cache(MOST)(find)

    def client(environ: Mapping[str, str], peer: str | None) -> str | None:
        line = environ.get(variable)
        if line is None:
            return find(peer)
        return known(peer, line) if len(line) <= LONGEST else find(peer, line)

    return client


def clients_of(
    client: Callable[[Any], str | None] | None,
    proxies: Proxies | None,
    lines: Lines,
    variable_of: Callable[[str], str] | None = None,
) -> ClientOf | None:
    """Return a function from request and peer to the client; None if the peer is the client."""
    if client is not None:
        return lambda request, peer: client(request)
    if proxies is None:
        return None
    return Clients(proxies, lines) if variable_of is None else _in_environs(proxies, variable_of(proxies.header))


class AskedView(RequestView):
    """A view whose user comes from the app: looked up only for a rule, as reading the session adds `Vary: Cookie`."""

    __slots__ = ("_user", "_user_of")

    _user: Any
    _user_of: UserOf

    @property
    def user(self) -> str | None:
        """The user, or None."""
        if self._user is _UNKNOWN:
            self._user = self._user_of(self.request)
        user: str | None = self._user
        return user

    @user.setter
    def user(self, given: str | None) -> None:
        self._user = given

    def ask_for_user(self, user_of: UserOf) -> None:
        """Look up the user with this function, at the first use."""
        self._user_of, self._user = user_of, _UNKNOWN
