"""The client of a request as a part of a key: its address, or the network of the address."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from headgate.errors import InvalidCall
from headgate.policy.address import counted
from headgate.policy.hashing import hashed
from headgate.policy.key_escaping import EMPTY, MISSING, ClientKey, writer
from headgate.policy.view import RequestView

_written: Final = writer(hashed)
IPV4_PREFIX: Final = 32
IPV6_PREFIX: Final = 64


@lru_cache(maxsize=16)
def client_keys(ipv4: int, ipv6: int) -> ClientKey:
    """Return a function that makes the key of a client: an address by its network, a name unchanged."""

    @lru_cache(maxsize=16_384)
    def keyed(client: str) -> str:
        try:
            return counted(client, ipv6, ipv4)
        except InvalidCall:
            return _written(client) or EMPTY

    return keyed


client_key: Final = client_keys(IPV4_PREFIX, IPV6_PREFIX)
"""Returns the key of a client under a policy without `address_prefixes`."""


def fallback_key(view: RequestView, keyed: ClientKey) -> str:
    """Return the replacement for a missing part: the client's address, marked so that no sent value can equal it.

    Requests without an address share one budget: unknown clients are limited too.
    """
    address = view.client
    return MISSING + keyed(address) if address else MISSING


class AddressPart:
    """The client's address, as it is counted."""

    __slots__ = ("keyed",)

    def __init__(self, keyed: ClientKey) -> None:
        self.keyed = keyed

    def __call__(self, view: RequestView, params: Mapping[str, str]) -> str | None:
        """Return the key of the client's address."""
        address = view.client
        return self.keyed(address) if address else None
