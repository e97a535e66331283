"""Addresses and networks: one canonical text for each, and the keys that addresses are counted by."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from socket import AF_INET, AF_INET6, inet_ntop, inet_pton
from typing import Final, NamedTuple

from headgate.errors import InvalidCall
from headgate.wording import shown

LONGEST_ADDRESS: Final = 64
"""Characters, with brackets, zone and port. A longer text is not an address and is not cached."""

_CACHED: Final = 8192
_MAPPED: Final = bytes(10) + b"\xff\xff"
_NAT64: Final = 0x64_FF9B << 64
"""64:ff9b::/96 without its last 32 bits."""
_NETWORK: Final = re.compile(r"[0-9A-Fa-f:.]{2,45}(?:/[0-9]{1,3})?")
_WITH_PORT: Final = re.compile(r"(?:\[([^\[\]]+)\]|([0-9.]+))(?::(?:[0-9]{1,5}|_[A-Za-z0-9._-]+))?")


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
        read = [_read_network(network) for network in listed_networks(networks)]
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


@lru_cache(maxsize=_CACHED)
def counted(address: str, ipv6_prefix: int = 64, ipv4_prefix: int = 32) -> str:
    """Return the key of an address: IPv4 unchanged, IPv6 by its network, `2001:db8:1:2::/64`.

    One customer commonly has a whole /64, and could otherwise be 2**64 clients. IPv4 addresses inside IPv6 ones, mapped
    or by NAT64, are unpacked first: by /64 they would all share one key.
    """
    found = read_address(address)
    if found is None:
        raise InvalidCall(f"{shown(address)} is not an IP address; write for instance 203.0.113.9 or 2001:db8::1")
    for name, bits, most in (("ipv6_prefix", ipv6_prefix, 128), ("ipv4_prefix", ipv4_prefix, 32)):
        if isinstance(bits, bool) or not isinstance(bits, int) or not 1 <= bits <= most:
            raise InvalidCall(f"{name} must be a number of bits from 1 to {most}; got {shown(bits)}")
    if found.bits == 32 or found.value >> 32 == _NAT64:
        four = IPv4Address(found.value & 0xFFFF_FFFF)
        return str(four) if ipv4_prefix == 32 else str(IPv4Network((four, ipv4_prefix), strict=False))
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


def listed_networks(networks: Iterable[str]) -> tuple[str, ...]:
    """Return networks as a tuple, or raise `InvalidCall`."""
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
