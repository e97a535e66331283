"""A request as policies see it. Edges fill in what their framework knows; everything else is worked out when asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from headgate.policy.address import Proxies
from headgate.policy.host import plain_host
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
)

_UNSET: Final = object()
_TOO_LONG: Final = f"cannot be read from more than {LONGEST} characters"
T = TypeVar("T")


class RequestView:
    """One request. `headers` has lower-case names and every line of each, in order."""

    __slots__ = (
        "_claims", "_client", "_proxies", "_query", "claims_of", "headers", "method", "path", "peer",
        "plan", "query_string", "repeated", "request", "route", "unclear", "user",
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
        self._query: Mapping[str, Sequence[str]] | None = None
        self.repeated: Repeated = "refuse"
        """Which value `header`, `query` and `cookie` give where several differ; not one is given for `each`."""
        self.unclear: Unclear | None = None
        """Why the request is refused, where an edge has found that out."""

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
    def hosts(self) -> Sequence[str]:
        """The hosts that were asked for, without ports; one, unless the client says it twice."""
        return tuple({plain_host(as_text(line).strip()): None for line in self.host_lines() or ("",)})

    def host_lines(self) -> Sequence[str]:
        """Everything in the request that names its host."""
        return self.headers.get("host") or ()

    @property
    def accept(self) -> str | None:
        """The kinds of answers that the client takes."""
        lines = self.headers.get("accept")
        return None if not lines else ", ".join(lines)

    @property
    def from_trusted_peer(self) -> bool:
        """Whether headers that only a proxy may set can be believed."""
        return self._proxies is not None and self._proxies.trusts(self.peer)

    def header(self, name: str) -> str | None:
        """A header's value; None when it was not sent, which is not the same as empty."""
        name = name.lower()
        lines = self.header_values(name)
        if not lines:
            return None
        line = lines[0] if len(lines) == 1 else kind_of_header(name).one(name, lines, self.repeated)
        return HEADER.plain(line)

    def query(self, name: str) -> str | None:
        """The value of a query parameter."""
        values = self.query_values(name)
        return QUERY.said(name, QUERY.one(name, values, self.repeated)) if values else None

    def cookie(self, name: str) -> str | None:
        """A cookie's value."""
        values = self.cookie_values(name)
        return COOKIE.said(name, COOKIE.one(name, values, self.repeated)) if values else None

    def header_values(self, name: str) -> Sequence[str]:
        """The lines of a header, as they were sent; of cookies, which HTTP/2 sends in many lines, all as one."""
        lines = self.headers.get(name) or ()
        return ["; ".join(lines)] if len(lines) > 1 and name == "cookie" else lines

    def query_values(self, name: str) -> Sequence[str]:
        """The values of a query parameter, as they were sent."""
        if self._query is None:
            raw = self.query_string
            if len(raw) > LONGEST:
                raise Unclear(f"query parameter {name}", _TOO_LONG)
            self._query = parameters(raw if isinstance(raw, str) else raw.decode("latin-1")) if raw else {}
        return self._query.get(name, ())

    def cookie_values(self, name: str) -> Sequence[str]:
        """The values of a cookie, as they were sent."""
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
    """A function of the request, that finds claims where the app gives none, and one value where there are several."""
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
