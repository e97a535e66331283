"""The names of keys in the server: short, all of one length, and without the key itself.

`hg1:{SUBJECT}LIMITSPACE`: a version; 128 bits of BLAKE2b over namespace and key, in braces, so that every limit of a
key is in one cluster slot and braces in a key cannot choose a slot; 48 bits of the limit's identity; 18 bits of the
namespace, by which `clear` finds it. A reader who knows the keys can compute the names; a pepper prevents that.
"""

from __future__ import annotations

from binascii import b2a_base64
from functools import lru_cache
from hashlib import blake2b
from typing import Final

from headgate.limit import Limit

PREFIX: Final = b"hg1:"
REMEMBERED: Final = 16_384
"""The most subjects whose names are kept."""


class Names:
    """The names of one namespace."""

    def __init__(self, namespace: str, pepper: bytes) -> None:
        self.namespace = namespace
        seed = blake2b(namespace.encode("utf-8", "surrogatepass") + b"\0", digest_size=16, key=pepper)
        self._seed = seed
        self._space = _short(seed.digest())[:3]
        self.subject = lru_cache(REMEMBERED)(self._subject)

    def _subject(self, key: str) -> bytes:
        """Return `hg1:{...}`, the prefix of all names of one key."""
        digest = self._seed.copy()
        digest.update(key.encode("utf-8", "surrogatepass"))
        return PREFIX + b"{" + _short(digest.digest()) + b"}"

    def suffix(self, limit: Limit) -> bytes:
        """Return the suffix after the subject, for this limit."""
        return _short(blake2b(limit.identity.encode("utf-8", "surrogatepass"), digest_size=6).digest()) + self._space

    @property
    def pattern(self) -> bytes:
        """The glob for every name of the namespace."""
        return PREFIX + b"{*}????????" + self._space + b"*"


def _short(digest: bytes) -> bytes:
    return b2a_base64(digest, newline=False).rstrip(b"=")
