"""The client of a request: its address behind trusted proxies, without reading the rest; and its user, from the app."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final

from headgate.engine import Decision
from headgate.policy import Proxies, RequestView
from headgate.policy.edges import ClientKey, FastPath, last_part

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
Decide = Callable[[Any, str | None], Decision | None]
"""Decides on a framework's request and its peer; None if the request takes the steps."""


class Clients:
    """`clients(request, peer)` is the address of the client. The same peer and header are looked up once."""

    def __init__(self, proxies: Proxies, lines: Lines) -> None:
        self._header = proxies.header
        self._lines = lines
        self._find = _finder(proxies)
        self._known = lru_cache(MOST)(self._find)
        self._parts: dict[tuple[ClientKey, bool], Callable[[str | None, str], str | None]] = {}

    def __call__(self, request: Any, peer: str | None) -> str | None:  # noqa: ANN401
        """Return the same address as `RequestView.client`."""
        lines = self._lines(request, self._header)
        if len(lines) == 1 and len(lines[0]) <= LONGEST:
            return self._known(peer, lines[0])
        return self._find(peer, *lines)

    def deciding(self, fast: FastPath) -> Decide:
        """Return `decide_request` of a fast path; the same peer and header are looked up once, up to their key."""
        header, lines_of, prefix, ask, costs = self._header, self._lines, fast.prefix, fast.ask, fast.costs
        part_of = self._part_of(fast.client_key, bool(prefix))

        def decide(request: Any, peer: str | None) -> Decision | None:  # noqa: ANN401
            lines = lines_of(request, header)
            if len(lines) != 1 or len(lines[0]) > LONGEST:
                return fast.decide(self._find(peer, *lines))
            part = part_of(peer, lines[0])
            try:
                return None if part is None else ask(prefix + part, costs)
            except Exception:  # the steps try again, and answer by `on_error`
                return None

        return decide

    def _part_of(self, client_key: ClientKey, after_others: bool) -> Callable[[str | None, str], str | None]:
        """Return a function from peer and header to the client as a part of a key; None without an address."""

        @lru_cache(MOST)
        def part(peer: str | None, line: str) -> str | None:
            client = self._find(peer, line)
            if not client:
                return None
            return last_part(client_key(client)) if after_others else client_key(client)

        return self._parts.setdefault((client_key, after_others), part)


class EnvironClients(Clients):
    """The same for servers that have joined the lines of the header into one variable of an environ."""

    def __init__(self, proxies: Proxies, lines: Lines, variable: str) -> None:
        super().__init__(proxies, lines)
        self._variable = variable

    def __call__(self, environ: Any, peer: str | None) -> str | None:  # noqa: ANN401
        """Return the same address as `RequestView.client`."""
        line = environ.get(self._variable)
        if line is None:
            return self._find(peer)
        return self._known(peer, line) if len(line) <= LONGEST else self._find(peer, line)

    def deciding(self, fast: FastPath) -> Decide:
        """Return `decide_request` of a fast path."""
        variable, prefix, ask, costs = self._variable, fast.prefix, fast.ask, fast.costs
        part_of = self._part_of(fast.client_key, bool(prefix))

        def decide(environ: Any, peer: str | None) -> Decision | None:  # noqa: ANN401
            line = environ.get(variable)
            if line is None or len(line) > LONGEST:
                return fast.decide(self(environ, peer))
            part = part_of(peer, line)
            try:
                return None if part is None else ask(prefix + part, costs)
            except Exception:
                return None

        return decide


def _finder(proxies: Proxies) -> Callable[..., str | None]:
    def find(peer: str | None, *lines: str) -> str | None:
        return (proxies.client(peer, lines) or peer) if proxies.trusts(peer) else peer

    return find


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
    if variable_of is None:
        return Clients(proxies, lines)
    return EnvironClients(proxies, lines, variable_of(proxies.header))


def deciding(fast: FastPath, clients: ClientOf | None) -> Decide:
    """Return `decide_request` of a fast path."""
    if isinstance(clients, Clients):
        return clients.deciding(fast)
    decide = fast.decide
    if clients is None:
        return lambda request, peer: decide(peer)
    return lambda request, peer: decide(clients(request, peer))


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
