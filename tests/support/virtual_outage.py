"""An outage in virtual time, and the crowd that comes back after it: programs, each with a budget of its own."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NamedTuple

from headgate.client import Budget
from headgate.clock import SECOND
from headgate.errors import BudgetExhausted
from headgate.stores import MemoryStore
from tests.support.virtual import VirtualLoop
from tests.support.virtual_api import Response, SimulatedApi, SimulatedRequest

OUTAGE = 60
Tell = Callable[[int], Mapping[str, str]]
"""Returns the header fields of a failure, by the seconds that are left of the outage."""


def untold(left: int) -> Mapping[str, str]:
    return {}


def ten_seconds(left: int) -> Mapping[str, str]:
    return {"retry-after": "10"}


def the_end(left: int) -> Mapping[str, str]:
    return {"retry-after": str(left)}


class Seconds(NamedTuple):
    """Requests that the server got, in each second."""

    usual: float
    """The mean before the outage."""
    during: list[int]
    after: list[int]

    @property
    def peak(self) -> float:
        """The busiest second after the outage, by the mean before it."""
        return max(self.after) / self.usual


def outage(tell: Tell, clients: int = 1_000, pause: float = 5, around: int = 30, seed: int = 1) -> Seconds:
    """Let clients ask at random, with a mean pause between two requests, through an outage of a minute."""
    loop = VirtualLoop()
    api = SimulatedApi(loop, "1000000/second", seed=seed)
    begins, ends = around, around + OUTAGE

    def broken() -> Response | None:
        second = loop.now // SECOND
        return Response(503, tell(ends - second)) if begins <= second < ends else None

    async def ask(own: random.Random) -> None:
        budget = Budget("1000/second", store=MemoryStore(clock=api.clock))
        while True:
            await asyncio.sleep(own.expovariate(1 / pause))
            with suppress(BudgetExhausted):
                await budget.run_async(SimulatedRequest(api))

    api.broken = broken
    state = random.getstate()
    random.seed(seed)  # from which the jitter is drawn
    try:
        for number in range(clients):
            loop.create_task(ask(random.Random(seed * clients + number)))
        loop.run((ends + around) * SECOND)
    finally:
        loop.let_go()
        random.setstate(state)
    usual = [api.seconds[second] for second in range(around // 3, begins)]
    during, after = ([api.seconds[at + n] for n in range(span)] for at, span in ((begins, OUTAGE), (ends, around)))
    return Seconds(sum(usual) / len(usual), during, after)
