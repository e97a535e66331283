"""What a store, a log or a label may see of a secret: 128 bits of BLAKE2b.

Secrets that people or programs choose badly can be guessed, and a guess can be hashed. With a pepper the hash is keyed:
whoever has the store but not the pepper has nothing to compare a guess with.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from hashlib import blake2b
from typing import Final

Hash = Callable[[str], str]
LONGEST_REMEMBERED: Final = 256
"""What is longer is hashed each time: values are the clients', and a cache of long ones would be theirs to fill."""
LONGEST_KEY: Final = blake2b.MAX_KEY_SIZE


def hasher(pepper: bytes = b"") -> Hash:
    """A hash by this pepper; without one, the hash that anybody can compute."""
    key = pepper if len(pepper) <= LONGEST_KEY else blake2b(pepper).digest()

    def hashed(value: str) -> str:
        return "\\h" + blake2b(value.encode("utf-8", "surrogatepass"), digest_size=16, key=key).hexdigest()

    return hashed


def remembering(function: Hash) -> Hash:
    """The same function, which knows the answers for short values again."""
    remembered = lru_cache(maxsize=16_384)(function)
    return lambda value: remembered(value) if len(value) <= LONGEST_REMEMBERED else function(value)


hashed: Final = hasher()
