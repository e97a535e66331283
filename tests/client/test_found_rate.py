"""Rates that are found from refusals alone, by fleets whose processes begin as real ones do."""

from __future__ import annotations

import asyncio

import pytest

from headgate.client import Budget
from headgate.clock import SECOND
from headgate.stores import MemoryStore
from tests.support.virtual import VirtualLoop
from tests.support.virtual_api import SimulatedApi, SimulatedRequest


@pytest.mark.parametrize("latency", [0.002, 0.005, 0.05])
def test_a_crowd_that_begins_one_after_another_finds_the_rate(latency: float):
    """nginx with a burst of 20 refuses after some milliseconds, when each process has sent a dozen requests: that tells
    nothing about a second. From the 30th second on, 95 % is used and 1 % refused at most."""
    loop = VirtualLoop()
    api = SimulatedApi(loop, "200/second burst 21", latency=latency)
    store = MemoryStore(clock=api.clock)

    async def call(budget: Budget, begins_ms: int) -> None:
        await asyncio.sleep(begins_ms / 1_000)
        while True:
            await budget.run_async(SimulatedRequest(api))

    for budget in [Budget(store=store) for _ in range(4)]:
        for number in range(64):
            loop.create_task(call(budget, number))
    try:
        loop.run(30 * SECOND)
        before = api.statuses.copy()
        loop.run(60 * SECOND)
    finally:
        loop.let_go()
    passed, refused = (api.statuses[status] - before[status] for status in (200, 429))
    assert passed >= 0.95 * 30 * 200
    assert refused <= 0.01 * (passed + refused)
