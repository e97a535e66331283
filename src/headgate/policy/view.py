"""A request as policies see it. Edges set the fields that their framework knows; the rest is computed on demand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from headgate.policy.path import plain_host
from headgate.policy.proxies import Proxies
from headgate.policy.values import (
    COOKIE,
    HEADER,
    LONGEST,
    QUERY,
    Repeated,
    Unclear,
    as_text,
    cookies,
    kind_of_header,
    parameters,
    reads_as_utf_8,
)

_UNSET: Final = object()
_TOO_LONG: Final = f"cannot be read from more than {LONGEST} characters"
_OTHER_CHARSET: Final = "may be read in the charset of the Content-Type, which must be UTF-8"
T = TypeVar("T")


class RequestView:
    """One request. `headers` has lower-case names and every line of each, in order."""

    __slots__ = (
        "_claims", "_client", "_proxies", "_query", "claims_of", "headers", "marked", "method", "path", "peer",
        "plan", "query_string", "repeated", "request", "request_class", "results", "route", "unclear", "user",
        "would_refuse",
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
        """The template of the route, if the framework has found it already."""
        self.request: Any = None
        """The framework's request, for the app's functions."""
        self.user: str | None = None
        self.plan: str | None = None
        self.claims_of: ClaimsOf | None = None
        """The function that finds the claims if the app gives none; set by the policy."""
        self._claims: Any = _UNSET
        self._proxies = proxies
        self._client: Any = _UNSET
        self._query: Mapping[str, Sequence[str]] | None = None
        self.repeated: Repeated = "refuse"
        """The choice of `header`, `query` and `cookie` among different values; for `each` they raise `Unclear`."""
        self.unclear: Unclear | None = None
        """The reason for a refusal that an edge has found."""
        self.request_class: str | None = None
        """The class of the request, for the fleet's limit of `shed`; None if that does not apply."""
        self.results: dict[Callable[..., Any], Any] | None = None
        """The results of the app's functions that have to be awaited."""
        self.marked: tuple[Any, ...] = ()
        """The rules with `act: mark` over whose limits the request is, with their decisions."""
        self.would_refuse: list[str] | None = None
        """The names of rules that observe and would refuse, if a shedder observes; None if it enforces."""

    @property
    def client(self) -> str | None:
        """The client's address, as trusted proxies forward it; None if it is not known.

        A peer name that is not an address, such as a test client's, is used unchanged.
        """
        if self._client is _UNSET:
            peer, proxies = self.peer, self._proxies
            if proxies is None or not proxies.trusts(peer):
                self._client = peer
            else:
                self._client = proxies.client(peer, self.headers.get(proxies.header, [])) or peer
        client: str | None = self._client
        return client

    @client.setter
    def client(self, given: str | None) -> None:
        self._client = given

    @property
    def claims(self) -> Mapping[str, Any] | None:
        """The claims of a verified token: from the app, or verified with the policy's key at the first use."""
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
    def hosts(self) -> Sequence[str]:
        """The requested hosts, without ports; one, unless the client sends different ones."""
        return tuple({plain_host(as_text(line).strip()): None for line in self.host_lines() or ("",)})

    def host_lines(self) -> Sequence[str]:
        """Return every value in the request that names its host."""
        return self.headers.get("host") or ()

    @property
    def accept(self) -> str | None:
        """The content types that the client accepts."""
        lines = self.headers.get("accept")
        return None if not lines else ", ".join(lines)

    @property
    def from_trusted_peer(self) -> bool:
        """Whether the peer is a trusted proxy, whose headers can be used."""
        return self._proxies is not None and self._proxies.trusts(self.peer)

    def header(self, name: str) -> str | None:
        """Return a header's value; None if it was not sent, which differs from empty."""
        name = name.lower()
        lines = self.header_values(name)
        if not lines:
            return None
        line = lines[0] if len(lines) == 1 else kind_of_header(name).one(name, lines, self.repeated)
        return HEADER.plain(line)

    def query(self, name: str) -> str | None:
        """Return the value of a query parameter; None if it was not sent."""
        values = self.query_values(name)
        return QUERY.said(name, QUERY.one(name, values, self.repeated)) if values else None

    def cookie(self, name: str) -> str | None:
        """Return a cookie's value; None if it was not sent."""
        values = self.cookie_values(name)
        return COOKIE.said(name, COOKIE.one(name, values, self.repeated)) if values else None

    def header_values(self, name: str) -> Sequence[str]:
        """Return the lines of a header as they were sent; cookies, which HTTP/2 sends in many lines, as one."""
        lines = self.headers.get(name) or ()
        return ["; ".join(lines)] if len(lines) > 1 and name == "cookie" else lines

    def query_values(self, name: str) -> Sequence[str]:
        """Return the values of a query parameter, as they were sent."""
        if self._query is None:
            raw = self.query_string
            if len(raw) > LONGEST:
                raise Unclear(f"query parameter {name}", _TOO_LONG)
            text = raw if isinstance(raw, str) else raw.decode("latin-1")
            lines = self.headers.get("content-type") if text else None
            if lines and not all(reads_as_utf_8(text, line) for line in lines):
                raise Unclear(f"query parameter {name}", _OTHER_CHARSET)
            self._query = parameters(text) if text else {}
        return self._query.get(name, ())

    def cookie_values(self, name: str) -> Sequence[str]:
        """Return the values of a cookie, as they were sent."""
        lines = self.headers.get("cookie")
        if not lines:
            return ()
        if sum(map(len, lines)) > LONGEST:
            raise Unclear(f"cookie {name}", _TOO_LONG)
        return cookies(lines, name)


ClaimsOf = Callable[[RequestView], Mapping[str, Any] | None]


def informed(
    function: Callable[[RequestView], T], claims_of: ClaimsOf | None, repeated: Repeated = "refuse"
) -> Callable[[RequestView], T]:
    """Wrap a function of the request so that `claims_of` and `repeated` apply to the request while it runs."""
    if claims_of is None and repeated == "refuse":
        return function

    def asked(view: RequestView) -> T:
        if claims_of is not None:
            view.claims_of = claims_of
        view.repeated = repeated
        try:
            return function(view)
        finally:
            view.repeated = "refuse"

    return asked
