"""Recorded snapshots of an app's counts, and a page that serves them in turn."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

START = 1_700_000_000.0
HOSTILE = ("a\x1b[2J\x1b[31m\x07\r\nb", "x" * 4096, "\u202egpj.exe\u2066", "名" * 300, "e" + "\u0301" * 500)
"""Keys that try to steer a terminal: escapes, 4 KB, bidi marks, wide characters, and marks that pile up."""


def rule(name: str, allowed: int, refused: int, text: str = "100/minute", observed: int = 0) -> dict[str, Any]:
    """A rule with its counts."""
    counts = {"allowed": allowed, "refused": refused, "shadowed": 0, "observed": observed, "delayed": 0, "exempt": 5}
    return {
        "namespace": "policy",
        "rule": name,
        "limits": [{"text": text, "amount": 100, "period": 60.0}],
        "counts": {**counts, "degraded_allowed": 0, "degraded_refused": 0},
    }


def snapshot(at: float, rules: Sequence[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """A snapshot, this many seconds after the start."""
    store = {"name": "", "kind": "shared", "up": True, "errors": 0, "keys": 1234, "evictions": 0, "degraded": False}
    return {
        "version": 1,
        "at": START + at,
        "started": START - 7200,
        "workers": 4,
        "namespace": "policy",
        "policy": {"file": "policy.yaml", "loaded_at": START - 300, "reload_failures": 0},
        "stores": [store],
        "rules": list(rules),
        "limiters": [],
        "refused_keys": [],
        "busiest_keys": [],
        **more,
    }


def refused(key: str, count: int, since: float = 0.0, rule: str = "login", error: int = 0) -> dict[str, Any]:
    """A key that was refused."""
    return {"rule": rule, "key": key, "count": count, "error": error, "since": START + since}


def recorded() -> list[dict[str, Any]]:
    """An app in three seconds: one rule refuses, one observes, one is idle; the keys are hostile."""
    three = []
    for at, (allowed, no, seen) in enumerate(((1000, 50, 0), (1040, 60, 3), (1100, 80, 8))):
        rules = [
            rule("login", 20, no, "5/minute by sliding-log"),
            rule("api", allowed, 0),
            rule("next", 500 + seen, 0, "10/minute; 100/hour", observed=seen),
            rule("idle", 0, 0),
        ]
        keys = [refused("203.0.113.7", no, -90), *(refused(key, 9 - n, -n) for n, key in enumerate(HOSTILE))]
        busy = [{"rule": "api", "key": "198.51.100.9", "count": 640, "error": 64}]
        three.append(snapshot(at, rules, refused_keys=keys, busiest_keys=busy))
    return three


class Page:
    """A page that answers with the next snapshot, the last one again and again; or with a status."""

    def __init__(self, answers: Sequence[dict[str, Any]], token: str | None) -> None:
        self.answers, self.token, self.asked = list(answers), token, 0
        self.status = 200
        self.url = self.location = ""

    def answer(self, given: str | None) -> tuple[int, bytes]:
        """Return status and body."""
        if self.token is not None and given != f"Bearer {self.token}":
            return 401, b""
        self.asked += 1
        return self.status, json.dumps(self.answers[min(self.asked, len(self.answers)) - 1]).encode()


@contextmanager
def page(answers: Sequence[dict[str, Any]], token: str | None = None) -> Iterator[Page]:
    """Serve snapshots at `/top`."""
    served = Page(answers, token)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = served.answer(self.headers.get("Authorization")) if self.path == "/top" else (404, b"")
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            if served.location:
                self.send_header("Location", served.location)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
