"""Questions to the app of the decision service, in this process."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from headgate.edge.app import App
from headgate.edge.building import build
from headgate.edge.runtime import EdgeRuntime
from headgate.edge.settings import Settings
from tests.support.edge import Answer

CLIENT = "203.0.113.9"


class InProcess:
    """The app of one worker, without a server."""

    def __init__(self, policy: Any = None, store: str = "memory://", **settings: Any) -> None:
        found: tuple[App, EdgeRuntime] = build(Settings(policy=policy, **settings), store)
        self.app, self.runtime = found

    def ask(
        self, method: str, path: str, headers: list[tuple[str, str]] | None = None, body: bytes = b"",
        peer: str | None = "127.0.0.1",
    ) -> Answer:  # fmt: skip
        """One request, as a server hands it over."""
        where, _, query = path.partition("?")
        pairs = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers or []]
        scope = {"type": "http", "method": method, "path": where, "query_string": query.encode(), "headers": pairs,
                 "client": (peer, 1) if peer else None}  # fmt: skip
        sent: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        asyncio.run(self.app(scope, receive, send))
        start, end = sent
        return start["status"], {name.decode(): value.decode() for name, value in start["headers"]}, end["body"]

    def check(self, uri: str, *more: tuple[str, str], method: str = "GET", query: str = "", **peer: Any) -> Answer:
        """A question as a proxy asks it."""
        told = [("X-Forwarded-Method", method), ("X-Forwarded-Uri", uri), ("X-Forwarded-For", CLIENT), *more]
        return self.ask("GET", f"/check{query}", told, **peer)

    def question(self, value: Any) -> tuple[int, Any]:
        """A question as a program asks it."""
        status, _, body = self.ask("POST", "/v1/check", body=json.dumps(value).encode())
        return status, json.loads(body)
