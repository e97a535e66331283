"""Names that servers give to limits."""

from __future__ import annotations

from typing import Final

LONGEST_NAME: Final = 128


def name_of(text: str) -> str | None:
    """Return a name of printable ASCII; None for any other text, because names become keys."""
    return text if text and len(text) <= LONGEST_NAME and text.isascii() and text.isprintable() else None
