"""The options of every edge, and their defaults. Settings of frameworks have the same names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, TypedDict

from headgate.errors import InvalidCall
from headgate.policy import Policy, Proxies
from headgate.stores import Store
from headgate.web.option_answers import WANTED, checked
from headgate.web.refusal import Refusal
from headgate.wording import explained

PolicyGiven = Policy | str | Path | Mapping[str, Any]
NO_RULES: Final[Mapping[str, Any]] = {"namespace": "policy", "rules": []}
"""The policy of an app whose limits are all at its endpoints."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebOptions:
    """The options of an edge."""

    enabled: bool = True
    """Whether limits apply; without them every request passes, and nothing is counted."""
    store: Store | str | None = None
    """The store that counts, or its URL; the memory of the process by default."""
    trusted_proxies: Sequence[str] = ()
    """Networks of proxies whose forwarded headers are trusted."""
    proxy_hops: int = 0
    """The number of proxies in front of the app, if their addresses are not known."""
    forwarded_header: str = "x-forwarded-for"
    """The header that the proxies write: a list such as x-forwarded-for, or one address, such as cf-connecting-ip."""
    client: Callable[..., str | None] | None = None
    """A function from the framework's own request to the client's address, in place of peer and headers."""
    user: Callable[..., str | None] | None = None
    """A function from the framework's own request to the user, for keys."""
    claims: Callable[..., Mapping[str, Any] | None] | None = None
    """A function from the framework's own request to the claims of a verified token."""
    plan: Callable[..., str | None] | None = None
    """A function from a request's view to its plan."""
    refusal: Refusal | None = None
    """The body of refusals."""
    hash_addresses: bool = False
    """Whether addresses appear as hashes where keys are listed and logged."""

    def __post_init__(self) -> None:
        """Check what no type checker may have seen, also the answers of functions: the text "false" would be true."""
        if not isinstance(self.enabled, bool):
            raise InvalidCall(f"enabled must be True or False; got {self.enabled!r}")
        for name in WANTED:
            function = getattr(self, name)
            if function is not None:
                object.__setattr__(self, name, checked(name, function))

    @property
    def proxies(self) -> Proxies | None:
        """The proxies in front of the app, or None; raises for networks that cannot be read."""
        proxies = Proxies(self.trusted_proxies, hops=self.proxy_hops, header=self.forwarded_header)
        return proxies if self.trusted_proxies or self.proxy_hops else None


WebOptions.__init__ = explained(WebOptions.__init__)  # type: ignore[method-assign,assignment]


class Options(TypedDict, total=False):
    """`WebOptions` as keyword arguments, for type checkers."""

    enabled: bool
    store: Store | str | None
    trusted_proxies: Sequence[str]
    proxy_hops: int
    forwarded_header: str
    client: Callable[..., str | None] | None
    user: Callable[..., str | None] | None
    claims: Callable[..., Mapping[str, Any] | None] | None
    plan: Callable[..., str | None] | None
    refusal: Refusal | None
    hash_addresses: bool


OPTION_NAMES: Final = tuple(field.name for field in fields(WebOptions))
