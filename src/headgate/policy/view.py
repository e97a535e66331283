"""A request as policies see it. Edges fill in what their framework knows; everything else is worked out when asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl

from headgate.policy.address import Proxies

LONGEST_QUERY: Final = 16_384
MOST_FIELDS: Final = 256
_UNSET: Final = object()
T = TypeVar("T")


class RequestView:
    """One request. `headers` has lower-case names and every line of each, in order."""

    __slots__ = (
        "_claims", "_client", "_cookies", "_proxies", "_query", "claims_of", "headers", "method", "path", "peer",
        "plan", "query_string", "request", "route", "user",
    )  # fmt: skip

    def __init__(
        self,
        method: str,
        path: str,
        headers: Mapping[str, list[str]],
        peer: str | None = None,
        proxies: Proxies | None = None,
    ) -> None:
        self.method = method
        self.path = path
        self.headers = headers
        self.peer = peer
        self.query_string: str | bytes = ""
        self.route: str | None = None
        """The template of the route, where the framework has found it already."""
        self.request: Any = None
        """The framework's own, for the app's functions."""
        self.user: str | None = None
        self.plan: str | None = None
        self.claims_of: ClaimsOf | None = None
        """Who finds the claims where the app gives none; set by the policy."""
        self._claims: Any = _UNSET
        self._proxies = proxies
        self._client: Any = _UNSET
        self._query: Mapping[str, str] | None = None
        self._cookies: Mapping[str, str] | None = None

    @property
    def client(self) -> str | None:
        """The client's address, told by trusted proxies where there are any; None if nobody knows.

        A server that names its peers otherwise, as a test client does, is taken at its word.
        """
        if self._client is _UNSET:
            peer, proxies = self.peer, self._proxies
            if proxies is None or not proxies.trusts(peer):
                self._client = peer
            else:
                lines = self.headers.get
                self._client = proxies.client(peer, lines("forwarded", []), lines("x-forwarded-for", [])) or peer
        client: str | None = self._client
        return client

    @property
    def claims(self) -> Mapping[str, Any] | None:
        """Of a token that was verified: by the app, or by the policy's key when they are asked for first."""
        if self._claims is _UNSET:
            if self.claims_of is None:
                return None
            self._claims = self.claims_of(self)
        claims: Mapping[str, Any] | None = self._claims
        return claims

    @claims.setter
    def claims(self, given: Mapping[str, Any] | None) -> None:
        self._claims = _UNSET if given is None else given

    @property
    def host(self) -> str:
        """The host that was asked for."""
        return self.header("host") or ""

    @property
    def from_trusted_peer(self) -> bool:
        """Whether headers that only a proxy may set can be believed."""
        return self._proxies is not None and self._proxies.trusts(self.peer)

    def header(self, name: str) -> str | None:
        """A header's value, its lines joined; None when it was not sent, which is not the same as empty."""
        lines = self.headers.get(name)
        return None if not lines else lines[0] if len(lines) == 1 else ", ".join(lines)

    def query(self, name: str) -> str | None:
        """The first value of a query parameter."""
        if self._query is None:
            raw = self.query_string
            self._query = _first_of(raw if isinstance(raw, str) else raw.decode("latin-1"))
        return self._query.get(name)

    def cookie(self, name: str) -> str | None:
        """A cookie's value."""
        if self._cookies is None:
            self._cookies = _cookies(self.headers.get("cookie", []))
        return self._cookies.get(name)


ClaimsOf = Callable[[RequestView], Mapping[str, Any] | None]


def informed(function: Callable[[RequestView], T], claims_of: ClaimsOf | None) -> Callable[[RequestView], T]:
    """A function of the request, that finds claims where the app gives none."""
    if claims_of is None:
        return function

    def asked(view: RequestView) -> T:
        view.claims_of = claims_of
        return function(view)

    return asked


def _first_of(query_string: str) -> dict[str, str]:
    """The parameters that fit: a hostile query is cut, never an error."""
    found: dict[str, str] = {}
    try:
        pairs = parse_qsl(query_string[:LONGEST_QUERY], keep_blank_values=True, errors="replace")
    except ValueError:
        return found
    for name, value in pairs[:MOST_FIELDS]:
        found.setdefault(name, value)
    return found


def _cookies(lines: list[str]) -> dict[str, str]:
    """Cookies by name, the first of each. RFC 6265's pairs, without a parser that gives up at the first oddity."""
    found: dict[str, str] = {}
    for line in lines:
        for pair in line[:LONGEST_QUERY].split(";")[:MOST_FIELDS]:
            name, equals, value = pair.strip().partition("=")
            if equals and name:
                found.setdefault(name.strip(), value.strip().strip('"'))
    return found
