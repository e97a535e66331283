"""What keys are called in the server: short, of one length, and telling nothing.

`hg1:{SUBJECT}LIMITSPACE`: a version; 128 bits of BLAKE2b over namespace and key, in braces, so that every limit of a
subject lives in one cluster slot and no user's own braces can aim at one; 48 bits of the limit's identity; 18 bits of
the namespace, for `clear` to find it by. Who knows the keys can compute the names: give a pepper where that matters.
"""

from __future__ import annotations

from binascii import b2a_base64
from functools import lru_cache
from hashlib import blake2b
from typing import Final

from headgate.limit import Limit

PREFIX: Final = b"hg1:"
REMEMBERED: Final = 16_384
"""Subjects whose names are not computed again."""


class Names:
    """The names of one namespace."""

    def __init__(self, namespace: str, pepper: bytes) -> None:
        self.namespace = namespace
        seed = blake2b(namespace.encode("utf-8", "surrogatepass") + b"\0", digest_size=16, key=pepper)
        self._seed = seed
        self._space = _short(seed.digest())[:3]
        self.subject = lru_cache(REMEMBERED)(self._subject)

    def _subject(self, key: str) -> bytes:
        """`hg1:{...}`: what all names of one key begin with."""
        digest = self._seed.copy()
        digest.update(key.encode("utf-8", "surrogatepass"))
        return PREFIX + b"{" + _short(digest.digest()) + b"}"

    def suffix(self, limit: Limit) -> bytes:
        """What follows the subject for this limit."""
        return _short(blake2b(limit.identity.encode("utf-8", "surrogatepass"), digest_size=6).digest()) + self._space

    @property
    def pattern(self) -> bytes:
        """A glob for every name of the namespace."""
        return PREFIX + b"{*}????????" + self._space + b"*"


def _short(digest: bytes) -> bytes:
    return b2a_base64(digest, newline=False).rstrip(b"=")
