"""aiohttp."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import aiohttp

from headgate.client import Budget
from headgate.client.aiohttp import middleware
from headgate.testing import ManualClock
from tests.support.transports.clients import Body, Client, Got, awaited, lowered, streamed


@contextmanager
def in_loops(budget: Budget, address: str, clock: ManualClock, moves: bool) -> Iterator[Client]:
    @asynccontextmanager
    async def opened() -> AsyncIterator[Callable[..., Any]]:
        connector = aiohttp.TCPConnector(limit=1)
        async with aiohttp.ClientSession(address, connector=connector, middlewares=[middleware(budget)]) as session:

            async def send(method: str, path: str, headers: Mapping[str, str], body: Body) -> Got:
                content: Any = streamed(body) if isinstance(body, list) else body
                async with session.request(method, path, headers=headers, data=content or None) as response:
                    return Got(response.status, lowered(response.headers.items()), await response.read())

            yield send

    with awaited(opened, clock, moves) as client:
        yield client
