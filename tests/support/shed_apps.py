"""An app on a real server whose requests are slow, behind the policy in HEADGATE_POLICY; it tells of its shedder.

`/slow` takes 20 ms, `/stats` tells the numbers, `/mode/NAME` is the kill switch; the last two are exempt in the policy.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any

from headgate.web.asgi import RateLimitMiddleware as Asgi
from headgate.web.wsgi import RateLimitMiddleware as Wsgi

POLICY = os.environ.get("HEADGATE_POLICY", "policy.yaml")
SECONDS = 0.02


def _control(limits: Any, path: str) -> bytes:
    if path.startswith("/mode/"):
        limits.shedder.mode = path.removeprefix("/mode/")
    stats = asdict(limits.shedder.stats())
    return json.dumps({**stats, "refused": sum(stats["refused"].values()), "mode": limits.shedder.mode}).encode()


def _wsgi(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    path = environ["PATH_INFO"]
    if path == "/slow":
        time.sleep(SECONDS)
    body = b"slow" if path == "/slow" else _control(wsgi, path)
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]


async def _asgi(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] != "http":
        return
    path = scope["path"]
    if path == "/slow":
        await asyncio.sleep(SECONDS)
    body = b"slow" if path == "/slow" else _control(asgi, path)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


if "HEADGATE_POLICY" in os.environ:
    asgi, wsgi = Asgi(_asgi, POLICY), Wsgi(_wsgi, POLICY)
