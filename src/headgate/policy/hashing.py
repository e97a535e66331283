"""Hashes of secrets for stores, logs and labels: 128 bits of BLAKE2b.

A weak secret can be guessed, and the guess can be hashed and compared. With a pepper the hash is keyed: an attacker who
has the store but not the pepper cannot hash a guess.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from hashlib import blake2b
from typing import Final

Hash = Callable[[str], str]
LONGEST_REMEMBERED: Final = 256
"""Characters. Longer values are not cached: clients choose them and could fill the memory."""
LONGEST_KEY: Final = blake2b.MAX_KEY_SIZE


def hasher(pepper: bytes = b"") -> Hash:
    """Return a hash function keyed with this pepper; without one, an unkeyed hash."""
    key = pepper if len(pepper) <= LONGEST_KEY else blake2b(pepper).digest()

    def hashed(value: str) -> str:
        return "\\h" + blake2b(value.encode("utf-8", "surrogatepass"), digest_size=16, key=key).hexdigest()

    return hashed


def remembering(function: Hash) -> Hash:
    """Return the same function with a cache for short values."""
    remembered = lru_cache(maxsize=16_384)(function)
    return lambda value: remembered(value) if len(value) <= LONGEST_REMEMBERED else function(value)


hashed: Final = hasher()
