"""Budgets of several processes that call a simulated API, in virtual time."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from headgate.client import Budget, Event
from headgate.clock import SECOND
from headgate.stores import MemoryStore
from tests.support.virtual import VirtualLoop
from tests.support.virtual_api import SimulatedApi, SimulatedRequest


def told_wait(decision: Any) -> Mapping[str, str]:
    return {} if decision else {"retry-after": str(math.ceil(decision.retry_after))}


def told_limit(decision: Any) -> Mapping[str, str]:
    limit = decision.calls[0].limit
    fields = {
        "ratelimit-policy": f'"x";q={limit.amount};w={limit.period_us // SECOND}',
        "ratelimit": f'"x";r={decision.remaining};t={math.ceil(decision.reset_after)}',
    }
    return {**fields, **told_wait(decision)}


class World:
    """A simulated API, and budgets of several processes on one store."""

    def __init__(self, limit: str = "100/second", tell: Callable[[Any], Mapping[str, str]] = told_wait) -> None:
        self.loop = VirtualLoop()
        self.api = SimulatedApi(self.loop, limit, tell)
        self.store = MemoryStore(clock=self.api.clock)
        self.events: list[Event] = []

    def budget(self, limits: Any = (), **options: Any) -> Budget:
        return Budget(limits, store=self.store, on_event=self.events.append, **options)

    def crowd(self, budget: Budget, callers: int) -> None:
        """Start callers that send one request after another."""

        async def call() -> None:
            while True:
                await budget.run_async(SimulatedRequest(self.api))

        for _ in range(callers):
            self.loop.create_task(call())

    def result(self, *calls: Awaitable[Any], seconds: float = 600) -> list[Any]:
        """Run calls side by side to their end; return their results or errors."""

        async def gathered() -> list[Any]:
            return await asyncio.gather(*calls, return_exceptions=True)

        task: asyncio.Task[list[Any]] = self.loop.create_task(gathered())
        self.loop.run(self.loop.now + round(seconds * SECOND))
        return task.result()

    def run(self, seconds: float) -> None:
        self.loop.run(self.loop.now + round(seconds * SECOND))

    def end(self) -> None:
        self.loop.let_go()
