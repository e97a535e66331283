"""The smallest WSGI and ASGI applications with a limit: 200 while it lasts, 429 after. The store is in HEADGATE_URL."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from headgate import AsyncLimiter, Limiter

LIMIT = "25/4 weeks by sliding-window"
URL = os.environ.get("HEADGATE_URL", "memory://")

limiter = Limiter(LIMIT, store=URL, on_error="raise")
async_limiter = AsyncLimiter(LIMIT, store=URL, on_error="raise")


def wsgi(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Made before the workers are forked, where the server preloads; after, where it does not."""
    allowed = limiter.hit(environ["HTTP_X_USER"]).allowed
    start_response("200 OK" if allowed else "429 Too Many Requests", [("Content-Length", "0")])
    return [b""]


async def asgi(scope: dict[str, Any], receive: Callable[..., Any], send: Callable[..., Any]) -> None:
    """One request, one decision."""
    if scope["type"] != "http":
        return
    user = dict(scope["headers"])[b"x-user"].decode()
    allowed = (await async_limiter.hit(user)).allowed
    await send(
        {"type": "http.response.start", "status": 200 if allowed else 429, "headers": [(b"content-length", b"0")]}
    )
    await send({"type": "http.response.body", "body": b""})
