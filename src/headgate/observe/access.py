"""Access to the pages of a process: requests from loopback have it, or requests with a token."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from typing import Final

from headgate.errors import InvalidCall

SHORTEST_TOKEN: Final = 16
FORWARDED: Final = frozenset({"forwarded", "x-forwarded-for", "x-real-ip"})
"""Fields of requests that a proxy has passed on."""
May = Callable[[str | None, str], bool]
"""Whether a request may see a page, by its peer's address and its field `Authorization`."""


def guarded_by(token: str | None) -> May:
    """Admit those that bear this token; without one, those from loopback."""
    if token is None:
        return from_loopback
    if not isinstance(token, str) or len(token) < SHORTEST_TOKEN:
        raise InvalidCall(f"a token needs at least {SHORTEST_TOKEN} characters")
    return bearing(lambda: (token.encode(),))


def bearing(tokens: Callable[[], Sequence[bytes]]) -> May:
    """Admit those that bear one of the tokens, which are asked for with each request."""

    def may(peer: str | None, authorization: str) -> bool:
        scheme, _, given = authorization.partition(" ")
        said = given.strip().encode("utf-8", "replace")
        return scheme.lower() == "bearer" and any(hmac.compare_digest(said, token) for token in tokens())

    return may


def peer_itself(peer: str | None, host: str, forwarded: bool) -> str | None:
    """Return the peer if the request is its own: not passed on by a proxy, and not sent by a page of another site.

    A proxy on this machine has a loopback address, whatever the address of its client; and a name of another site may
    be resolved to loopback, in a browser on this machine.
    """
    name = host.rpartition(":")[0] if host[-1:].isdigit() and ":" in host else host
    name = name.strip("[]").lower()
    return peer if not forwarded and (name in ("", "localhost") or from_loopback(name, "")) else None


def from_loopback(peer: str | None, authorization: str) -> bool:
    """Admit those from this machine."""
    try:
        address = ip_address((peer or "").partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
