"""Apps for real servers, one for each edge: 25 requests of each X-User pass. The store is in HEADGATE_URL.

The policy of the apps without a framework is the file in HEADGATE_POLICY. A framework is imported for its own app only,
so that the others start soon.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from headgate.web.asgi import RateLimitMiddleware as Asgi
from headgate.web.wsgi import RateLimitMiddleware as Wsgi

POLICY = os.environ.get("HEADGATE_POLICY", "policy.yaml")
URL = os.environ.get("HEADGATE_URL", "memory://")
LIMIT: dict[str, Any] = {
    "limits": "25/4 weeks by sliding-window", "key": {"header": "x-user"}, "missing": "deny",
}  # fmt: skip


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


def _flask() -> Any:
    from flask import Flask

    from headgate.web import flask

    app = Flask(__name__)
    app.config["HEADGATE_STORE"] = URL
    flask.RateLimits(app)
    app.add_url_rule("/items/<int:item>/", "item", flask.limited(**LIMIT)(lambda item: str(item)))
    return app


def _fastapi() -> Any:
    from fastapi import Depends, FastAPI, WebSocket

    from headgate.web import fastapi

    async def open_once(websocket: WebSocket) -> None:
        await websocket.accept()

    open_once.__annotations__["websocket"] = WebSocket  # FastAPI looks for names in the module

    app = FastAPI()
    fastapi.RateLimits(app, store=URL)
    app.get("/items/{item}/", dependencies=[Depends(fastapi.limit(**LIMIT))])(lambda item: item)
    app.websocket("/ws", dependencies=[Depends(fastapi.limit(**{**LIMIT, "limits": "1/4 weeks"}))])(open_once)
    return app


def _aiohttp() -> Any:
    from aiohttp import web

    from headgate.web import aiohttp

    @aiohttp.limited(**LIMIT)
    async def item(request: web.Request) -> web.Response:
        return web.Response(text=request.match_info["item"])

    app = web.Application()
    aiohttp.RateLimits(app, store=URL)
    app.router.add_get("/items/{item}/", item)
    return app


MADE: dict[str, Callable[[], Any]] = {
    "wsgi": lambda: Wsgi(_wsgi, POLICY, store=URL),
    "asgi": lambda: Asgi(_asgi, POLICY, store=URL),
    "flask_app": _flask,
    "fastapi_app": _fastapi,
    "aiohttp_app": _aiohttp,
}


def __getattr__(name: str) -> Any:
    """Only the one that the server asks for is made."""
    if name in MADE:
        return MADE[name]()
    raise AttributeError(name)
