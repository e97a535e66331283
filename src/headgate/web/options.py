"""What every edge can be told, and what holds where nothing is said. Settings of frameworks have the same names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, TypedDict

from headgate.policy import Policy, Proxies
from headgate.stores import Store
from headgate.web.refusal import Refusal
from headgate.wording import explained

PolicyGiven = Policy | str | Path | Mapping[str, Any]
NO_RULES: Final[Mapping[str, Any]] = {"namespace": "policy", "rules": []}
"""The policy of an app whose limits are all at its endpoints."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebOptions:
    """The options of an edge."""

    store: Store | str | None = None
    """Where is counted: a store, or its URL; the memory of the process where there is none."""
    trusted_proxies: Sequence[str] = ()
    """Networks whose forwarded headers are believed."""
    proxy_hops: int = 0
    """How many proxies there are, where only their number is known."""
    forwarded_header: str = "x-forwarded-for"
    """The header that the proxies write."""
    user: Callable[..., str | None] | None = None
    """Who makes a request, by the framework's own request; for keys."""
    claims: Callable[..., Mapping[str, Any] | None] | None = None
    """The claims of a token that the app has verified."""
    plan: Callable[..., str | None] | None = None
    """The plan of a request, by its view."""
    refusal: Refusal | None = None
    """What a refusal looks like."""

    @property
    def proxies(self) -> Proxies | None:
        """The proxies in front of the app; an error shows networks that cannot be read."""
        proxies = Proxies(self.trusted_proxies, hops=self.proxy_hops, header=self.forwarded_header)
        return proxies if self.trusted_proxies or self.proxy_hops else None


WebOptions.__init__ = explained(WebOptions.__init__)  # type: ignore[method-assign,assignment]


class Options(TypedDict, total=False):
    """`WebOptions` as keyword arguments, for type checkers."""

    store: Store | str | None
    trusted_proxies: Sequence[str]
    proxy_hops: int
    forwarded_header: str
    user: Callable[..., str | None] | None
    claims: Callable[..., Mapping[str, Any] | None] | None
    plan: Callable[..., str | None] | None
    refusal: Refusal | None


OPTION_NAMES: Final = tuple(field.name for field in fields(WebOptions))
