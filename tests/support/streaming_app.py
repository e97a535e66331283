"""An app whose body never ends by itself, and that settles when its client has gone; the environment has its store."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from headgate.web.starlette import RateLimits

RULE = {"name": "tokens", "key": "everyone", "limits": "1000/day by fixed-window", "cost": 500}
REAL = 7
"""The tokens that each answer has really used, as its generator tells in the end."""


async def endless(request: Request) -> StreamingResponse:
    async def pieces() -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"x" * 10_000
                await asyncio.sleep(0)
        finally:
            if "silent" not in request.url.path:
                request.state.rate_limit.settle(tokens=REAL)

    return StreamingResponse(pieces())


def build(**options: Any) -> tuple[Starlette, RateLimits]:
    """Return the app and its limits."""
    app = Starlette(routes=[Route("/", endless), Route("/silent", endless)])
    return app, RateLimits(app, {"rules": [RULE]}, **options)


app = build(store=os.environ["STORE"])[0] if "STORE" in os.environ else None
