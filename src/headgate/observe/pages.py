"""The pages of a process for its operators: `/metrics`, `/counts` and `/top`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

from headgate.observe.access import May
from headgate.observe.published import ALL_KEYS, NO_KEYS
from headgate.observe.snapshot import Snapshot, without_keys
from headgate.observe.text import exposition

TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
JSON: Final = "application/json"
Page = tuple[int, str, bytes]
"""Status, content type and body."""
Seen = Callable[[int], Snapshot]
"""Returns a snapshot, with as many of its keys as asked for."""


class Pages:
    """The pages, for any framework."""

    def __init__(self, seen: Seen, may: May) -> None:
        self._seen = seen
        self._may = may

    def answer(self, method: str, path: str, peer: str | None, authorization: str) -> Page:
        """Answer a request, if it may see the page."""
        if not self._may(peer, authorization):
            return 403, "text/plain", b"forbidden\n"
        if method not in ("GET", "HEAD"):
            return 405, "text/plain", b"use GET\n"
        name = path.rstrip("/").rpartition("/")[2]
        if name not in ("metrics", "counts", "top"):
            return 404, "text/plain", b"there are /metrics, /counts and /top\n"
        seen = self._seen(ALL_KEYS if name == "top" else NO_KEYS)
        if name == "metrics":
            return 200, TEXT, exposition(seen).encode()
        return 200, JSON, json.dumps(seen if name == "top" else without_keys(seen)).encode()
