"""The texts by which rows are found: readable where that is safe, and hashes elsewhere.

A text is stored as it is if it has only printable ASCII, without quotes and backslashes, and is not long: so it can be
in every database and statement. Any other text is stored as `#` and 128 bits of BLAKE2b in 22 letters. Keys are always
stored as hashes, unless the store has `readable_keys`.
"""

from __future__ import annotations

import re
from binascii import b2a_base64
from functools import lru_cache
from hashlib import blake2b
from typing import Final, NamedTuple

from headgate.limit import Limit
from headgate.stores.contract import Keys

READABLE: Final = re.compile(r"[ !$-&(-\[\]-~][ !#-&(-\[\]-~]{0,199}")
REMEMBERED: Final = 16_384
"""The most keys whose texts are kept."""


class Name(NamedTuple):
    """The primary key of a row."""

    namespace: str
    key: str
    limit: str


class KeyText(NamedTuple):
    """A key as rows have it, and the number by which a server locks it."""

    text: str
    lock: int


class Names:
    """The texts of one namespace."""

    def __init__(self, namespace: str, pepper: bytes, readable_keys: bool) -> None:
        self.namespace = namespace
        self.text = _shown_or_hashed(namespace, blake2b(namespace.encode("utf-8", "surrogatepass"), digest_size=16))
        self._readable_keys = readable_keys
        self._seed = blake2b(namespace.encode("utf-8", "surrogatepass") + b"\0", digest_size=16, key=pepper)
        self.key = lru_cache(REMEMBERED)(self._key)

    def _key(self, key: str) -> KeyText:
        digest = self._seed.copy()
        digest.update(key.encode("utf-8", "surrogatepass"))
        lock = int.from_bytes(digest.digest()[:8], "big", signed=True)
        return KeyText(_shown_or_hashed(key if self._readable_keys else "", digest), lock)

    def rows(self, limits: tuple[Limit, ...], keys: Keys) -> tuple[list[Name], list[int]]:
        """Return the name of the row of each limit, and the numbers of the keys to lock, in one order everywhere."""
        space = self.text
        if isinstance(keys, str):
            text, lock = self.key(keys)
            return [Name(space, text, limit.identity) for limit in limits], [lock]
        found = [self.key(key) for key in keys]
        names = [Name(space, each.text, limit.identity) for each, limit in zip(found, limits, strict=True)]
        return names, sorted({each.lock for each in found})


def _shown_or_hashed(text: str, digest: blake2b) -> str:
    if READABLE.fullmatch(text):
        return text
    return "#" + b2a_base64(digest.digest(), newline=False).rstrip(b"=").decode()
