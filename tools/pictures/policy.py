"""The way of a request through a policy: its client, its rules, one decision, and the response."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from headgate import MemoryStore
from headgate.testing import ManualClock
from headgate.web.wsgi import RateLimitMiddleware
from tools.pictures.svg import Picture

RULES: list[dict[str, Any]] = [
    {"name": "login", "match": {"method": "POST", "path": "/login"}, "key": "ip", "limits": "5/minute by sliding-log"},
    {"name": "client", "key": "ip", "limits": "100/minute"},
    {"name": "search", "match": {"path": "/search"}, "key": "ip", "limits": "10/minute"},
    {"name": "site", "key": "everyone", "limits": "1000/second"},
]
PROXY, CLIENT = "10.0.0.1", "203.0.113.9"
Told = tuple[str, dict[str, str], dict[str, int]]
"""The status of a response, its header fields, and what is left by the name of a limit."""


def responses(count: int) -> list[Told]:
    """Send so many logins of one client through a proxy, at one instant."""

    def app(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        start("200 OK", [])
        return [b"welcome"]

    clock = ManualClock()
    site = RateLimitMiddleware(app, {"rules": RULES}, store=MemoryStore(clock=clock), trusted_proxies=["10.0.0.0/8"])
    told: list[Told] = []

    def start(status: str, headers: list[tuple[str, str]], *_: object) -> None:
        fields = dict(headers)
        left = {name: int(rest) for name, rest in re.findall(r'"([^"]+)";r=(\d+)', fields["RateLimit"])}
        told.append((status, fields, left))

    for _ in range(count):
        environ = {"REQUEST_METHOD": "POST", "PATH_INFO": "/login", "REMOTE_ADDR": PROXY}
        b"".join(site(environ | {"HTTP_X_FORWARDED_FOR": CLIENT}, start))
    return told


def way(drawn: Picture, top: float, title: str, told: Told) -> None:
    """Draw one request from left to right."""
    status, fields, left = told
    refused = not status.startswith("200")
    drawn.text(20, top, title, "ink title")
    y = top + 16
    columns = [
        (20, 150, "POST /login", [f"from {PROXY}", f"for {CLIENT}"]),
        (200, 150, "the client", [CLIENT, "told by a proxy"]),
    ]
    for x, width, head, lines in columns:
        drawn.rect(x, y + 30, width, 74, "box", 6)
        drawn.text(x + 12, y + 54, head)
        for row, line in enumerate(lines):
            drawn.text(x + 12, y + 74 + 18 * row, line, "soft code")
        drawn.arrow(x + width, y + 66, x + width + 30, y + 66)
    for row, rule in enumerate(RULES):
        applies = rule["name"] in left
        drawn.rect(380, y + 36 * row, 290, 30, "box", 6)
        drawn.text(392, y + 20 + 36 * row, f"{rule['name']}: {rule['limits']}", "ink" if applies else "soft")
        told_left = f"{left[rule['name']]} left" if applies else "no match"
        stops = refused and rule["name"] in fields.get("RateLimit", "") and left.get(rule["name"]) == 0
        drawn.text(662, y + 20 + 36 * row, told_left, "bad" if stops else "soft", "end")
    drawn.arrow(670, y + 66, 706, y + 66)
    drawn.rect(706, y + 30, 174, 74, "box", 6)
    drawn.text(718, y + 54, status, "bad" if refused else "ink")
    drawn.text(718, y + 74, "nothing is charged" if refused else "every limit is charged", "soft")
    drawn.text(718, y + 92, f"Retry-After: {fields['Retry-After']}" if refused else "the app is called", "soft")


def picture() -> str:
    """The first login passes, the sixth is refused."""
    told = responses(6)
    drawn = Picture(900, 400, "The way of a request: client, rules, one decision, response")
    way(drawn, 28, "The first login of a minute: every rule that matches is asked at once", told[0])
    way(drawn, 218, "The sixth: one limit refuses, and no other is charged", told[5])
    return drawn.svg()
