"""httpx and httpx2, in threads and in event loops."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from headgate.client import Budget
from headgate.client.httpx import Transport
from headgate.testing import ManualClock
from tests.support.transports.clients import Body, Client, Got, awaited, lowered, streamed

PLAIN = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Nobody here asks by TLS, and to read the certificates of all authorities takes each transport 24 ms."""


class HttpxClient:
    """A client for threads."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def ask(
        self, method: str = "GET", path: str = "/", headers: Mapping[str, str] | None = None, body: Body = b""
    ) -> Got:
        content: Any = iter(body) if isinstance(body, list) else body
        response = self._client.request(method, path, headers=headers, content=content or None)
        return Got(response.status_code, lowered(response.headers.items()), response.content)


@contextmanager
def in_threads(library: Any, budget: Budget, address: str, connections: int) -> Iterator[Client]:
    inner = library.HTTPTransport(verify=PLAIN, limits=library.Limits(max_connections=connections))
    with library.Client(transport=Transport(budget, inner), base_url=address) as client:
        yield HttpxClient(client)


@contextmanager
def in_loops(library: Any, budget: Budget, address: str, clock: ManualClock, moves: bool) -> Iterator[Client]:
    @asynccontextmanager
    async def opened() -> AsyncIterator[Callable[..., Any]]:
        inner = library.AsyncHTTPTransport(verify=PLAIN, limits=library.Limits(max_connections=1))
        async with library.AsyncClient(transport=Transport(budget, inner), base_url=address) as client:

            async def send(method: str, path: str, headers: Mapping[str, str], body: Body) -> Got:
                content: Any = streamed(body) if isinstance(body, list) else body
                response = await client.request(method, path, headers=headers, content=content or None)
                return Got(response.status_code, lowered(response.headers.items()), response.content)

            yield send

    with awaited(opened, clock, moves) as client:
        yield client
