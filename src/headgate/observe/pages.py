"""The pages of a process for its operators: `/metrics`, `/counts` and `/top`; only from loopback, or with a token."""

from __future__ import annotations

import hmac
import json
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from headgate.errors import InvalidCall
from headgate.observe.parts import Source
from headgate.observe.publish import Watched
from headgate.observe.text import exposition

TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
JSON: Final = "application/json"
SHORTEST_TOKEN: Final = 16
Page = tuple[int, str, bytes]
"""Status, content type and body."""


class Pages:
    """The pages, for any framework."""

    def __init__(self, sources: Sequence[Source], publish: str | Path | None, token: str | None) -> None:
        if token is not None and (not isinstance(token, str) or len(token) < SHORTEST_TOKEN):
            raise InvalidCall(f"a token needs at least {SHORTEST_TOKEN} characters")
        self._token = token
        self.watched = Watched(sources, publish)

    def answer(self, method: str, path: str, peer: str | None, authorization: str) -> Page:
        """Answer a request. With a token, only its bearers are answered; without one, only loopback."""
        if not self._may(peer, authorization):
            return 403, "text/plain", b"forbidden\n"
        if method not in ("GET", "HEAD"):
            return 405, "text/plain", b"use GET\n"
        name = path.rstrip("/").rpartition("/")[2]
        if name not in ("metrics", "counts", "top"):
            return 404, "text/plain", b"there are /metrics, /counts and /top\n"
        seen = self.watched.snapshot()
        if name == "metrics":
            return 200, TEXT, exposition(seen).encode()
        if name == "top":
            return 200, JSON, json.dumps(seen).encode()
        keyless = {
            part: value for part, value in seen.items() if part not in ("refused_keys", "busiest_keys", "floors")
        }
        return 200, JSON, json.dumps(keyless).encode()

    def _may(self, peer: str | None, authorization: str) -> bool:
        if self._token is not None:
            given = authorization.partition(" ")
            bears = given[0].lower() == "bearer"
            return bears and hmac.compare_digest(given[2].strip().encode("utf-8", "replace"), self._token.encode())
        try:
            address = ip_address((peer or "").partition("%")[0])
        except ValueError:
            return False
        mapped = getattr(address, "ipv4_mapped", None)
        return (mapped or address).is_loopback
