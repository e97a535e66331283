"""Apps behind a policy for real servers: the policy's file is in HEADGATE_POLICY, the store in HEADGATE_URL."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from headgate.web.asgi import RateLimitMiddleware as Asgi
from headgate.web.wsgi import RateLimitMiddleware as Wsgi

POLICY = os.environ.get("HEADGATE_POLICY", "policy.yaml")
URL = os.environ.get("HEADGATE_URL", "memory://")


def _wsgi(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    body = f"{os.getpid()}".encode()
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]


async def _asgi(scope: Any, receive: Callable[..., Any], send: Callable[..., Any]) -> None:
    if scope["type"] == "lifespan":
        while (await receive())["type"] != "lifespan.shutdown":
            await send({"type": "lifespan.startup.complete"})
        await send({"type": "lifespan.shutdown.complete"})
        return
    body = f"{os.getpid()}".encode()
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def __getattr__(name: str) -> Any:
    """Only the one that the server asks for is made."""
    if name == "wsgi":
        return Wsgi(_wsgi, POLICY, store=URL)
    if name == "asgi":
        return Asgi(_asgi, POLICY, store=URL)
    raise AttributeError(name)
