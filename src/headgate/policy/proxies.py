"""The client's address: the peer's, or the one that trusted proxies forward.

A header is written from left to right: each proxy adds the address it saw, and the client can write the beginning. So
the header is read from the right, and only as far as the writer of each entry is trusted:

    X-Forwarded-For: 6.6.6.6, 203.0.113.9, 10.0.0.2        peer 10.0.0.1, trusted 10.0.0.0/8
                     claimed  the client   a proxy

Only one header is used. A proxy that adds to one of them passes the others on as the client wrote them. Some proxies
replace a header instead, by one address: `CF-Connecting-IP`, `X-Real-IP`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from headgate.errors import InvalidCall
from headgate.policy.address import Address, Networks, listed_networks, read_address, read_node
from headgate.wording import shown

LISTS: Final = ("x-forwarded-for", "forwarded")
"""Headers to which each proxy adds an address."""
HEADERS: Final = (*LISTS, "cf-connecting-ip", "true-client-ip", "fly-client-ip", "x-real-ip")
"""The headers that can be used: those, and headers that a proxy replaces by one address."""
UNIX: Final = "unix"
"""The peer of a unix socket, which has no address."""
MOST_ENTRIES: Final = 64
MOST_PAIRS: Final = 16
LONGEST_HEADER: Final = 8192
"""Characters of a header that are read, from its end: many times the length that proxies add."""

_NAME: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
# Colons and brackets ought to be quoted, and often are not. They delimit nothing here, so they are accepted.
_PLAIN: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z:\[\]-]+"
# Possessive, so that hostile text is read once; only in the one form, *+ of characters, that works in every Python
# (groups: CPython to 3.11.4; ++: PyPy to 7.3.20).
_QUOTED: Final = r'"[^"\\\x00-\x1f\x7f]*+(?:\\[^\x00-\x1f\x7f][^"\\\x00-\x1f\x7f]*+)*"'
_PAIR: Final = re.compile(rf"[ \t]*+(?:({_NAME})=({_PLAIN}|{_QUOTED}))?[ \t]*+(;|\Z)")


@dataclass(frozen=True, slots=True, init=False, eq=False)
class Proxies:
    """The proxies in front of this server, by their networks or by their number; compiled once.

    `trusted` are addresses, networks, or `unix` for the peer of a unix socket. `hops` is the number of proxies that
    every request passes, for balancers whose addresses are not known. It is safe only if no client can bypass them.
    `header` is the one they write: a client can write anything into the others.
    """

    trusted: tuple[str, ...]
    hops: int
    header: str
    _networks: Networks = field(repr=False)
    _unix: bool = field(repr=False)

    def __init__(self, trusted: Iterable[str] = (), *, hops: int = 0, header: str = "x-forwarded-for") -> None:
        listed = listed_networks(trusted)
        networks = Networks([entry for entry in listed if entry != UNIX])
        _check(listed, networks, hops, header)
        object.__setattr__(self, "trusted", listed)
        object.__setattr__(self, "hops", hops)
        object.__setattr__(self, "header", header.lower())
        object.__setattr__(self, "_networks", networks)
        object.__setattr__(self, "_unix", UNIX in listed)

    def trusts(self, peer: str | None) -> bool:
        """Whether the headers of this peer are trusted. None is the peer of a unix socket; with hops, all peers are."""
        return self.hops > 0 or (peer in self._networks if peer else self._unix)

    def client(self, peer: str | None, lines: Sequence[str]) -> str | None:
        """Return the client's address as canonical text, from the peer's and every line of the `header`, in order.

        None for a peer without an address and without a trusted proxy. Rules count all of these as one client.
        """
        known = read_address(peer) if peer else None
        if self.hops or (self._networks.has(known) if known else self._unix and not peer):
            known = self._walk(known, lines) if self.header in LISTS else _only(lines) or known
        return known.text if known else None

    def _walk(self, known: Address | None, lines: Sequence[str]) -> Address | None:
        """Walk from the peer through the forwarded addresses, up to the first that is not trusted.

        An entry that is no address (garbage, `unknown`, a hidden name, nothing at all) ends the walk, and the last
        address before it is the client: a trusted proxy that does not name its client counts as the client.
        Skipping the entry would trust the text to its left, which the client may have written. Returning None would
        let a client that can provoke such an entry escape its own budget. So at worst the clients that a proxy hides
        share the budget of that proxy.

        The same holds for a header that ends early: fewer entries than hops, or only trusted ones.
        """
        entries = _entries(lines) if self.header == "x-forwarded-for" else map(_read_for, _elements(lines))
        for hop, entry in enumerate(entries, 1):
            address = read_node(entry)
            if address is None:
                return known
            known = address
            if hop == self.hops or not (self.hops or self._networks.has(address)):
                return known
        return known


def _entries(lines: Sequence[str]) -> Iterator[str]:
    """Return the entries between commas, last first. Empty ones count: a proxy wrote them without naming its client."""
    if not lines:
        return iter(())
    several = len(lines) > 1
    text = ",".join([line[-LONGEST_HEADER:] for line in lines[-MOST_ENTRIES:]]) if several else lines[0]
    entries = text[-LONGEST_HEADER:].rsplit(",", MOST_ENTRIES)
    if len(text) > LONGEST_HEADER or len(entries) > MOST_ENTRIES:
        del entries[0]  # truncated: the rest of 110.0.0.1 may be 10.0.0.1
    return reversed(entries)


def _elements(lines: Sequence[str]) -> Iterator[str]:
    """The elements of `Forwarded`, last first; a comma in quotes does not divide.

    Read from the left, a quote that the client leaves open would swallow what proxies add. From the right it cannot: an
    element that is well formed has an even number of quotes, and its end after a comma in quotes an odd one.
    An entry that stays odd to the end is malformed and left out: the walk ends there either way.
    """
    element, within = "", False
    for entry in _entries(lines):
        element = f"{entry},{element}" if within else entry
        if '"' in entry:
            within ^= entry.replace(r"\\", "").replace(r"\"", "").count('"') % 2 == 1
        if not within:
            yield element


def _read_for(element: str) -> str:
    """Return the node of the only `for` in an element of `Forwarded`; empty if it is malformed."""
    node, at = None, 0
    for _ in range(MOST_PAIRS):
        pair = _PAIR.match(element, at)
        if pair is None:
            return ""
        name, value, end = pair.groups()
        if name and name.lower() == "for":
            if node is not None:
                return ""
            node = value
        if not end:
            # No address needs a backslash, so an escaped one is not unescaped: it is not an address.
            return node.strip('"') if node else ""
        at = pair.end()
    return ""


def _only(lines: Sequence[str]) -> Address | None:
    """Return the address of a header that a proxy replaces; None if it was sent twice, or is not one address."""
    return read_node(lines[0]) if len(lines) == 1 else None


def _check(trusted: Sequence[str], networks: Networks, hops: int, header: str) -> None:
    if isinstance(hops, bool) or not isinstance(hops, int) or not 0 <= hops <= MOST_ENTRIES:
        raise InvalidCall(f"hops must be the number of proxies, from 0 to {MOST_ENTRIES}; got {shown(hops)}")
    if hops and trusted:
        raise InvalidCall(f"give the networks of the proxies or hops, not both; got {shown(trusted)} and hops={hops}")
    if not isinstance(header, str) or header.lower() not in HEADERS:
        raise InvalidCall(f"header must be the one that the proxies write, {' or '.join(HEADERS)}; got {shown(header)}")
    for network in networks.networks:
        if network.endswith("/0"):
            raise InvalidCall(
                f"{network} trusts every address, so a client could claim to be any other; "
                "list the networks of the proxies, or give their number, as in hops=1"
            )
