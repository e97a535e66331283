"""The client's address: the peer's, or the one that trusted proxies forward.

A header is written from left to right: each proxy adds the address it saw, and the client can write the beginning. So
the header is read from the right, and only as far as the writer of each entry is trusted:

    X-Forwarded-For: 6.6.6.6, 203.0.113.9, 10.0.0.2        peer 10.0.0.1, trusted 10.0.0.0/8
                     claimed  the client   a proxy

Only one header is used. A proxy that adds to one of them passes the other on as the client wrote it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from socket import AF_INET, AF_INET6, inet_ntop, inet_pton
from typing import Final, NamedTuple

from headgate.errors import InvalidCall
from headgate.wording import shown

HEADERS: Final = ("x-forwarded-for", "forwarded")
UNIX: Final = "unix"
"""The peer of a unix socket, which has no address."""
MOST_ENTRIES: Final = 64
MOST_PAIRS: Final = 16
LONGEST_HEADER: Final = 8192
"""Characters of a header that are read, from its end: many times the length that proxies add."""
LONGEST_ADDRESS: Final = 64
"""Characters, with brackets, zone and port. A longer text is not an address and is not cached."""

_CACHED: Final = 8192
_MAPPED: Final = bytes(10) + b"\xff\xff"
_NAT64: Final = 0x64_FF9B << 64
"""64:ff9b::/96 without its last 32 bits."""
_NETWORK: Final = re.compile(r"[0-9A-Fa-f:.]{2,45}(?:/[0-9]{1,3})?")
_WITH_PORT: Final = re.compile(r"(?:\[([^\[\]]+)\]|([0-9.]+))(?::(?:[0-9]{1,5}|_[A-Za-z0-9._-]+))?")
_NAME: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
# Colons and brackets ought to be quoted, and often are not. They delimit nothing here, so they are accepted.
_PLAIN: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z:\[\]-]+"
# Possessive, so that hostile text is read once; only in the one form, *+ of characters, that works in every Python
# (groups: CPython to 3.11.4; ++: PyPy to 7.3.20).
_QUOTED: Final = r'"[^"\\\x00-\x1f\x7f]*+(?:\\[^\x00-\x1f\x7f][^"\\\x00-\x1f\x7f]*+)*"'
_PAIR: Final = re.compile(rf"[ \t]*+(?:({_NAME})=({_PLAIN}|{_QUOTED}))?[ \t]*+(;|\Z)")


class Address(NamedTuple):
    """An address as one canonical text and as a number."""

    text: str
    bits: int
    """32 or 128. A mapped IPv4 address (`::ffff:a.b.c.d`) is the IPv4 address."""
    value: int


@dataclass(frozen=True, slots=True, init=False, eq=False)
class Networks:
    """A set of networks: `"10.1.2.3" in Networks(["10.0.0.0/8", "::1"])`. Other texts are in no network."""

    networks: tuple[str, ...]
    _tables: dict[int, tuple[tuple[int, frozenset[int]], ...]] = field(repr=False)

    def __init__(self, networks: Iterable[str] = ()) -> None:
        read = [_read_network(network) for network in _listed(networks)]
        object.__setattr__(self, "networks", tuple(map(str, read)))
        object.__setattr__(self, "_tables", {bits: _table(read, bits) for bits in (32, 128)})

    def __contains__(self, address: object) -> bool:
        found = read_address(address) if isinstance(address, str) else None
        return found is not None and self.has(found)

    def has(self, address: Address) -> bool:
        """Whether a network contains the address: one lookup for each prefix length, not for each network."""
        for shift, known in self._tables[address.bits]:  # noqa: SIM110 -- half the time of any()
            if address.value >> shift in known:
                return True
        return False


@dataclass(frozen=True, slots=True, init=False, eq=False)
class Proxies:
    """The proxies in front of this server, by their networks or by their number; compiled once.

    `trusted` are addresses, networks, or `unix` for the peer of a unix socket. `hops` is the number of proxies that
    every request passes, for balancers whose addresses are not known. It is safe only if no client can bypass them.
    `header` is the one they write: a client can write anything into the other.
    """

    trusted: tuple[str, ...]
    hops: int
    header: str
    _networks: Networks = field(repr=False)
    _unix: bool = field(repr=False)

    def __init__(self, trusted: Iterable[str] = (), *, hops: int = 0, header: str = "x-forwarded-for") -> None:
        listed = _listed(trusted)
        networks = Networks([entry for entry in listed if entry != UNIX])
        _check(listed, networks, hops, header)
        object.__setattr__(self, "trusted", listed)
        object.__setattr__(self, "hops", hops)
        object.__setattr__(self, "header", header)
        object.__setattr__(self, "_networks", networks)
        object.__setattr__(self, "_unix", UNIX in listed)

    def trusts(self, peer: str | None) -> bool:
        """Whether the headers of this peer are trusted. None is the peer of a unix socket; with hops, all peers are."""
        return self.hops > 0 or (peer in self._networks if peer else self._unix)

    def client(self, peer: str | None, forwarded: Sequence[str], x_forwarded_for: Sequence[str]) -> str | None:
        """Return the client's address as canonical text, from the peer's and every line of both headers, in order.

        None for a peer without an address and without a trusted proxy. Rules count all of these as one client.
        """
        known = read_address(peer) if peer else None
        if self.hops or (self._networks.has(known) if known else self._unix and not peer):
            known = self._walk(known, forwarded if self.header == "forwarded" else x_forwarded_for)
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


@lru_cache(maxsize=_CACHED)
def counted(address: str, ipv6_prefix: int = 64) -> str:
    """Return the key of an address: IPv4 unchanged, IPv6 by its network, `2001:db8:1:2::/64`.

    One customer commonly has a whole /64, and could otherwise be 2**64 clients. IPv4 addresses inside IPv6 ones, mapped
    or by NAT64, are unpacked first: by /64 they would all share one key.
    """
    found = read_address(address)
    if found is None:
        raise InvalidCall(f"{shown(address)} is not an IP address; write for instance 203.0.113.9 or 2001:db8::1")
    if isinstance(ipv6_prefix, bool) or not isinstance(ipv6_prefix, int) or not 1 <= ipv6_prefix <= 128:
        raise InvalidCall(f"ipv6_prefix must be a number of bits from 1 to 128; got {shown(ipv6_prefix)}")
    if found.bits == 32:
        return found.text
    if found.value >> 32 == _NAT64:
        return str(IPv4Address(found.value & 0xFFFF_FFFF))
    host = 128 - ipv6_prefix
    return f"{IPv6Address(found.value >> host << host)}/{ipv6_prefix}"


def read_address(text: str) -> Address | None:
    """Read an address without a port; None if it is not one. `%zone` is dropped: only its own host knows it."""
    return _read_address(text) if len(text) <= LONGEST_ADDRESS else None


@lru_cache(maxsize=_CACHED)
def _read_address(text: str) -> Address | None:
    if ":" not in text:
        four = _packed(AF_INET, text)
        # One spelling only, although some systems accept 010.0.0.1: some read it as octal, some as decimal.
        return _address(four) if four and inet_ntop(AF_INET, four) == text else None
    host, percent, zone = text.partition("%")
    six = _packed(AF_INET6, host)
    if six is None or (percent and not (zone and zone.isascii() and zone.isprintable())):
        return None
    return _address(six[12:] if six.startswith(_MAPPED) else six)


def read_node(text: str) -> Address | None:
    """Read an entry of a header: `1.2.3.4`, `1.2.3.4:567`, `::1`, `[::1]`, `[::1]:80`; None for anything else."""
    text = text.strip(" \t")
    if text[:1] != "[" and text.count(":") != 1:
        return read_address(text)
    found = _WITH_PORT.fullmatch(text) if len(text) <= LONGEST_ADDRESS else None
    if found is None or (found[1] and ":" not in found[1]):
        return None
    return read_address(found[1] or found[2])


def _packed(family: int, text: str) -> bytes | None:
    try:
        return inet_pton(family, text)
    except (OSError, ValueError):  # ValueError: NUL, or text that is not UTF-8
        return None


def _address(packed: bytes) -> Address:
    # Not inet_ntop for IPv6: systems differ in what they write, and servers on different ones share budgets.
    text = inet_ntop(AF_INET, packed) if len(packed) == 4 else str(IPv6Address(packed))
    return Address(text, 8 * len(packed), int.from_bytes(packed, "big"))


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


def _check(trusted: Sequence[str], networks: Networks, hops: int, header: str) -> None:
    if isinstance(hops, bool) or not isinstance(hops, int) or not 0 <= hops <= MOST_ENTRIES:
        raise InvalidCall(f"hops must be the number of proxies, from 0 to {MOST_ENTRIES}; got {shown(hops)}")
    if hops and trusted:
        raise InvalidCall(f"give the networks of the proxies or hops, not both; got {shown(trusted)} and hops={hops}")
    if header not in HEADERS:
        raise InvalidCall(f"header must be the one that the proxies write, {' or '.join(HEADERS)}; got {shown(header)}")
    for network in networks.networks:
        if network.endswith("/0"):
            raise InvalidCall(
                f"{network} trusts every address, so a client could claim to be any other; "
                "list the networks of the proxies, or give their number, as in hops=1"
            )


def _listed(networks: Iterable[str]) -> tuple[str, ...]:
    if isinstance(networks, str) or not isinstance(networks, Iterable):
        raise InvalidCall(f'networks must be a list, such as ["10.0.0.0/8", "::1"]; got {shown(networks)}')
    return tuple(networks)


def _read_network(text: str) -> IPv4Network | IPv6Network:
    network: IPv4Network | IPv6Network | None = None
    if isinstance(text, str) and _NETWORK.fullmatch(text):
        try:
            network = ip_network(text, strict=False)
        except ValueError:
            network = None
    if network is None:
        raise InvalidCall(f"{shown(text)} is not a network or an address; write it as 10.0.0.0/8, 192.0.2.1 or ::1")
    address = text.partition("/")[0]
    if int(network.network_address) != int(type(network.network_address)(address)):
        raise InvalidCall(f"{text} has bits set beyond its prefix; write {network}, or {address} for that one address")
    mapped = network.network_address.ipv4_mapped if isinstance(network, IPv6Network) else None
    if mapped is not None and network.prefixlen >= 96:
        return IPv4Network((mapped, network.prefixlen - 96))
    return network


def _table(networks: list[IPv4Network | IPv6Network], bits: int) -> tuple[tuple[int, frozenset[int]], ...]:
    """Return the networks of one family by the number of host bits."""
    tables: dict[int, set[int]] = {}
    for network in networks:
        if network.max_prefixlen == bits:
            shift = bits - network.prefixlen
            tables.setdefault(shift, set()).add(int(network.network_address) >> shift)
    return tuple((shift, frozenset(known)) for shift, known in tables.items())
