"""The width of text on a terminal: wide characters take two cells, combining ones none."""

from __future__ import annotations

from unicodedata import combining, east_asian_width


def sized(text: str, width: int) -> str:
    """Return a text of exactly this many cells; a longer one is cut, and ends with an ellipsis."""
    plain = text if text.isascii() else "".join(each for each in text if not combining(each))
    cells = [1 if each.isascii() or east_asian_width(each) not in "WF" else 2 for each in plain]
    if sum(cells) <= width:
        return plain + " " * (width - sum(cells))
    while sum(cells) > width - 1:
        cells.pop()
    return plain[: len(cells)] + "…" + " " * (width - 1 - sum(cells))
