"""URLs of stores, split without showing them in an error: they have passwords."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

from headgate.errors import InvalidCall


def split(url: str) -> SplitResult:
    """Return the parts of a URL. Python's own error would show its login."""
    try:
        return urlsplit(url)
    except ValueError:
        raise InvalidCall("cannot read the URL of a store; in a password, write %5B for [ and %5D for ]") from None
