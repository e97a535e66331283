"""URLs of stores, taken apart without showing them: they have passwords."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

from headgate.errors import InvalidCall


def split(url: str) -> SplitResult:
    """The parts of a URL. Python's own error would show its login."""
    try:
        return urlsplit(url)
    except ValueError:
        raise InvalidCall("the URL of a store cannot be read: write %5B for [, %5D for ] in a password") from None
