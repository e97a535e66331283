"""Values as they are written into keys: escaped, or hashed if they are long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from headgate.policy.hashing import Hash

ClientKey = Callable[[str], str]
"""Returns the key of a client, given its address or name."""
Write = Callable[[object], str | None]
"""Convert a value to a part of a key; None for a value that was not sent."""
LONGEST_PART: Final = 128
EMPTY: Final = "\\e"
MISSING: Final = "\\m"


def writer(digest: Hash) -> Write:
    """Return a function that makes a value a part of a key: escaped, or hashed if it is long."""

    def written(value: object) -> str | None:
        if value is None:
            return None
        text = value if isinstance(value, str) else str(value)
        if not text:
            return EMPTY
        if len(text) > LONGEST_PART:
            return digest(text)
        return text.replace("\\", "\\\\") if "\\" in text else text

    return written
