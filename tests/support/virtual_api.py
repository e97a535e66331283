"""A simulated API in virtual time: it counts by its own limit, tells of it in some dialect, and fails on demand."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, NamedTuple

from headgate import Limiter
from headgate.client.outgoing import Failure, Outgoing
from headgate.clock import SECOND
from headgate.stores import MemoryStore
from tests.support.virtual import VirtualLoop

EPOCH_US = 1_800_000_000 * SECOND


class LoopClock:
    """The clock of a virtual loop."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def now_us(self) -> int:
        return EPOCH_US + self._loop.now


class Response(NamedTuple):
    """An answer of the simulated API."""

    status: int
    headers: Mapping[str, str]


class Lost(Exception):
    """The connection was lost."""


class SimulatedApi:
    """One API with a limit; `tell` makes header fields from its decisions."""

    def __init__(
        self,
        loop: VirtualLoop,
        limit: str,
        tell: Callable[[Any], Mapping[str, str]] = lambda decision: {},
        latency: float = 0.05,
        seed: int = 0,
    ) -> None:
        self.loop = loop
        self.clock = LoopClock(loop)
        self.limiter = Limiter(limit, store=MemoryStore(clock=self.clock))
        self.tell = tell
        self.latency = latency
        self.statuses: Counter[int] = Counter()
        self.seconds: Counter[int] = Counter()
        self.broken: Callable[[], Response | None] = lambda: None
        self.in_flight = self.most_in_flight = 0
        self._chance = Random(seed)

    def spend(self) -> bool:
        """Spend as another program; return whether it was admitted."""
        return bool(self.limiter.hit("everyone"))

    async def answer(self) -> Response:
        """Answer one request after half of the latency on the way and half on the way back."""
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            await asyncio.sleep(self.latency * (0.25 + self._chance.random() / 2))
            response = self.broken() or self._decide()
            self.statuses[response.status] += 1
            self.seconds[self.loop.now // SECOND] += 1
            await asyncio.sleep(self.latency * (0.25 + self._chance.random() / 2))
            return response
        finally:
            self.in_flight -= 1

    def _decide(self) -> Response:
        decision = self.limiter.hit("everyone")
        return Response(200 if decision else 429, self.tell(decision))


class SimulatedRequest(Outgoing):
    """A request to the simulated API."""

    host = "api.example"

    def __init__(self, api: SimulatedApi, method: str = "GET", headers: Mapping[str, str] | None = None) -> None:
        self.api = api
        self.method = method
        self.headers = headers or {}

    def send(self) -> Any:
        return self.api.answer()

    def head(self, response: Any) -> tuple[int, Mapping[str, str]]:
        return response.status, response.headers

    async def content(self, response: Any) -> bytes:
        return b""

    async def close(self, response: Any) -> None:
        return None

    def failure(self, error: Exception) -> Failure | None:
        return "lost" if isinstance(error, Lost) else None
