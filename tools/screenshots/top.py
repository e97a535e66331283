"""The screen of `headgate top` over a minute of requests, decided in virtual time; as an SVG."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from random import Random
from typing import Any

from rich.console import Console
from rich.terminal_theme import TerminalTheme

from headgate import MemoryStore
from headgate.testing import ManualClock
from headgate.top.history import History
from headgate.top.screen import View, draw
from headgate.top.terminal import text_of
from headgate.web.wsgi import RateLimitMiddleware

POLICY = {
    "rules": [
        {"name": "login", "match": {"path": "/login"}, "key": "ip", "limits": "5/minute by sliding-log"},
        {"name": "api", "match": {"path": "/api/**"}, "key": "ip", "limits": "100/minute"},
        {"name": "search", "match": {"path": "/search"}, "key": "ip", "limits": "20/second"},
        {"name": "next-login", "match": {"path": "/login"}, "key": "ip", "limits": "3/minute", "act": "observe"},
        {"name": "export", "match": {"path": "/export"}, "key": "everyone", "limits": "10/hour"},
    ]
}
GUESSERS, SCRAPER = ("203.0.113.7", "203.0.113.7", "203.0.113.7", "198.51.100.9", "2001:db8:7::1"), "198.51.100.23"
NIGHT = (15, 17, 19)
"""The ground of the terminal."""
THEME = TerminalTheme(NIGHT, (230, 237, 243), [NIGHT] * 8, [NIGHT] * 8)
FETCHED = re.compile(r"@font-face \{.*?\}", re.DOTALL)
"""Fonts from elsewhere, which rich asks for."""


def screen(columns: int = 81, lines: int = 24) -> str:
    """Return the last screen of the minute."""
    history, clock, now = History(), ManualClock(), 0.0
    limits = RateLimitMiddleware(_app, POLICY, store=MemoryStore(clock=clock))
    since: dict[str, float] = {}
    for second, requests in enumerate(_minute(Random(7))):  # noqa: S311 - the same minute each time
        now = clock.now()
        for path, client in requests:
            environ = {"REQUEST_METHOD": "GET", "PATH_INFO": path, "REMOTE_ADDR": client}
            b"".join(limits(environ, lambda status, headers, _=None: None))
        seen: dict[str, Any] = {**limits.snapshot(), "at": now, "started": -7200.0, "workers": 4}
        seen["policy"] = {"file": "policy.yaml", "loaded_at": -300.0, "reload_failures": 0}
        seen["refused_keys"] = [{**key, "since": since.setdefault(key["key"], second)} for key in seen["refused_keys"]]
        history.add(seen)
        clock.advance(1)
    console = Console(record=True, width=columns, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(text_of(draw(history, View(), now, columns, lines)))
    return FETCHED.sub("", console.export_svg(title="headgate top http://127.0.0.1:6070", theme=THEME))


def _app(environ: object, start_response: Any) -> list[bytes]:  # noqa: ANN401
    start_response("200 OK", [])
    return [b""]


def _minute(chance: Random) -> Iterator[list[tuple[str, str]]]:
    """Yield the requests of each second: three clients guess passwords from the 20th on, one takes every item."""
    clients = [f"192.0.2.{number}" for number in range(1, 60)]
    for second in range(60):
        requests = [("/api/items", chance.choice(clients)) for _ in range(chance.randint(38, 55))]
        requests += [("/search", chance.choice(clients[:9])) for _ in range(chance.randint(4, 12))]
        requests += [("/login", chance.choice(clients)) for _ in range(chance.randint(0, 3))]
        requests += [("/api/items", SCRAPER)] * (4 if second > 10 else 0)
        requests += [("/login", chance.choice(GUESSERS)) for _ in range(chance.randint(25, 40) if second >= 20 else 0)]
        requests += [("/export", "192.0.2.9")] if second % 5 == 0 else []
        yield requests
