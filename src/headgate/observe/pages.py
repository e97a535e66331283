"""The pages of a process for its operators: `/metrics`, `/counts` and `/top`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

from headgate.observe.access import May
from headgate.observe.snapshot import Snapshot
from headgate.observe.text import exposition

TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
JSON: Final = "application/json"
Page = tuple[int, str, bytes]
"""Status, content type and body."""


class Pages:
    """The pages, for any framework."""

    def __init__(self, seen: Callable[[], Snapshot], may: May) -> None:
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
        seen = self._seen()
        if name == "metrics":
            return 200, TEXT, exposition(seen).encode()
        if name == "top":
            return 200, JSON, json.dumps(seen).encode()
        keyless = {
            part: value for part, value in seen.items() if part not in ("refused_keys", "busiest_keys", "floors")
        }
        return 200, JSON, json.dumps(keyless).encode()
