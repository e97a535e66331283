"""Apps for real servers whose workers publish their counts: a policy, a limit at one endpoint, and websockets.

The store is in HEADGATE_URL, the policy's file in HEADGATE_POLICY, and the directory of counts in HEADGATE_PUBLISH.
"""

from __future__ import annotations

import os
from typing import Any

from headgate.observe.prometheus import export

POLICY, URL = os.environ["HEADGATE_POLICY"], os.environ["HEADGATE_URL"]
PUBLISH = os.environ["HEADGATE_PUBLISH"]
AT_ENDPOINT: dict[str, Any] = {"limits": "3/4 weeks by sliding-window", "key": {"header": "x-user"}, "name": "few"}


def _flask() -> Any:
    from flask import Flask
    from prometheus_client import CollectorRegistry

    from headgate.web.flask import RateLimits, limited

    app = Flask(__name__)
    export(RateLimits(app, POLICY, store=URL), publish=PUBLISH, registry=CollectorRegistry())
    app.add_url_rule("/many", "many", lambda: str(os.getpid()))
    app.add_url_rule("/few", "few", limited(**AT_ENDPOINT)(lambda: str(os.getpid())))
    return app


def _starlette() -> Any:
    from prometheus_client import CollectorRegistry
    from starlette.applications import Starlette
    from starlette.responses import PlainTextResponse
    from starlette.routing import Route, WebSocketRoute

    from headgate.web.starlette import RateLimits, limited

    async def many(request: Any) -> PlainTextResponse:
        return PlainTextResponse(str(os.getpid()))

    async def talk(websocket: Any) -> None:
        await websocket.accept()
        await websocket.close()

    few = limited(**AT_ENDPOINT)(many)
    app = Starlette(routes=[Route("/many", many), Route("/few", few), WebSocketRoute("/talk", talk)])
    export(RateLimits(app, POLICY, store=URL), publish=PUBLISH, registry=CollectorRegistry())
    return app


MADE = {"flask_app": _flask, "starlette_app": _starlette}


def __getattr__(name: str) -> Any:
    """Only the one that the server asks for is made."""
    if name in MADE:
        return MADE[name]()
    raise AttributeError(name)
