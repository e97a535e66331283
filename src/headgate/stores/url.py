"""URLs of stores, split without showing them in an error: they have passwords."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import SplitResult, urlsplit

from headgate.errors import InvalidCall
from headgate.wording import shown

SERVERS: Final = {
    "redis": "redis", "rediss": "rediss", "valkey": "valkey", "valkeys": "valkeys",
    "postgres": "postgresql", "postgresql": "postgresql",
}  # fmt: skip
"""Schemes of servers, and how each is written best."""
_PORT: Final = re.compile(r"[0-9]{1,5}(?![0-9])")


def split(url: str) -> SplitResult:
    """Return the parts of a URL. Python's own error would show its login."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise InvalidCall("cannot read the URL of a store; in a password, write %5B for [ and %5D for ]") from None
    if "://" not in url:
        _check_host(parts)
    return parts


def _check_host(parts: SplitResult) -> None:
    """Raise for `redis:6379`, the host of many a compose file, which would be a database of this machine's server."""
    scheme = SERVERS.get(parts.scheme)
    if scheme is None:
        return
    if _PORT.match(parts.path):
        host = f"{parts.scheme}:{parts.path}"
        raise InvalidCall(f"{shown(host)} has no scheme: write {scheme}://{host}")
    raise InvalidCall(f"the URL of a server has // before its host: write {scheme}://HOST")
