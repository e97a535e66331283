"""Rates that are found from refusals alone, by fleets whose processes begin as real ones do."""

from __future__ import annotations

import asyncio

import pytest

from headgate.client import Budget
from headgate.clock import SECOND
from headgate.stores import MemoryStore
from tests.support.virtual import VirtualLoop
from tests.support.virtual_api import SimulatedApi, SimulatedRequest

pytestmark = pytest.mark.engineless


class Fleet:
    """Four processes whose callers begin one after another, at a server with a burst as nginx has."""

    def __init__(self, latency: float) -> None:
        self.loop = VirtualLoop()
        self.api = SimulatedApi(self.loop, "200/second burst 21", latency=latency)
        store = MemoryStore(clock=self.api.clock)
        for budget in [Budget(store=store) for _ in range(4)]:
            for number in range(64):
                self.loop.create_task(self._call(budget, number))

    async def _call(self, budget: Budget, begins_ms: int) -> None:
        await asyncio.sleep(begins_ms / 1_000)
        while True:
            await budget.run_async(SimulatedRequest(self.api))

    def counted(self, begin: int, end: int) -> tuple[int, int]:
        """Run; return how many requests passed, and how many were refused, between two seconds."""
        self.loop.run(begin * SECOND)
        before = self.api.statuses.copy()
        self.loop.run(end * SECOND)
        return self.api.statuses[200] - before[200], self.api.statuses[429] - before[429]


@pytest.fixture
def fleet():
    made: list[Fleet] = []

    def make(latency: float) -> Fleet:
        made.append(Fleet(latency))
        return made[-1]

    yield make
    for each in made:
        each.loop.let_go()


@pytest.mark.parametrize(
    "latency", [0.002, *(pytest.param(latency, marks=pytest.mark.soak) for latency in (0.005, 0.05))]
)
def test_a_crowd_that_begins_one_after_another_finds_the_rate(fleet, latency: float):
    """The server refuses after some milliseconds, when each process has sent a dozen requests: that tells nothing about
    a second. From the 30th second on, 95 % is used and 1 % refused at most."""
    passed, refused = fleet(latency).counted(30, 60)
    assert passed >= 0.95 * 30 * 200
    assert refused <= 0.01 * (passed + refused)


def test_a_limit_that_is_told_later_takes_the_place_of_a_rate(fleet):
    """After two seconds the server tells its limit: the guess of the first refusal no longer holds anybody back."""
    w = fleet(0.002)
    assert w.counted(0, 2)[0] < 200
    w.api.tell = lambda decision: {"ratelimit-policy": '"x";q=200;w=1'}
    passed, refused = w.counted(3, 6)
    assert passed >= 0.97 * 3 * 200
    assert refused == 0
