"""Values as they are written into keys: escaped, or hashed if they are long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from headgate.errors import InvalidCall
from headgate.policy.hashing import Hash
from headgate.wording import shown

ClientKey = Callable[[str], str]
"""Returns the key of a client, given its address or name."""
Write = Callable[[object], str | None]
"""Convert a value to a part of a key; None for a value that was not sent."""
LONGEST_PART: Final = 128
EMPTY: Final = "\\e"
MISSING: Final = "\\m"


class UnusablePart(InvalidCall):
    """A value that is no part of a key."""


def writer(digest: Hash) -> Write:
    """Return a function that makes a value a part of a key: escaped, or hashed if it is long."""

    def written(value: object) -> str | None:
        if value is None:
            return None
        text = value if isinstance(value, str) else _text_of(value)
        if not text:
            return EMPTY
        if len(text) > LONGEST_PART:
            return digest(text)
        return text.replace("\\", "\\\\") if "\\" in text else text

    return written


def _text_of(value: object) -> str:
    """Return the text of a value; raise where it has none but its place in memory, which differs for each request."""
    kind = type(value)
    if hasattr(kind, "__await__"):
        raise UnusablePart(f"a function gave {shown(value)}, which has to be awaited: write it as an async def")
    if kind.__str__ is object.__str__ and kind.__repr__ is object.__repr__:
        raise UnusablePart(f"{shown(value)} would be another key at each request: give its id, as text or a number")
    return str(value)
