"""A known limit whose server refuses all the same: the pace falls a little, for the whole fleet, and comes back."""

from __future__ import annotations

import asyncio

import pytest

from headgate.client import Budget
from headgate.client.pacing import paced, slower
from headgate.client.slowness import Slowness
from headgate.clock import SECOND
from headgate.limit import Limit
from headgate.stores import MemoryStore
from tests.support.virtual import VirtualLoop
from tests.support.virtual_api import SimulatedApi, SimulatedRequest

pytestmark = pytest.mark.engineless


def test_a_refusal_takes_two_percent_once_a_second():
    """Refusals within a second are one; the least pace is 70 %."""
    slowness = Slowness()
    shares = []
    for at in (0, SECOND - 1, SECOND, 2 * SECOND):
        slowness.refused(at)
        shares.append(slowness.share)
    assert shares == [0.98, 0.98, 0.98**2, 0.98**3]
    for second in range(3, 40):
        slowness.refused(second * SECOND)
    assert slowness.share == 0.7


def test_a_pace_comes_back_slowly_and_then_faster():
    """By a fiftieth of a percent in the first second, and in 44 s all that one refusal took."""
    slowness = Slowness()
    slowness.refused(0)
    shares = [slowness.at(second * SECOND) for second in range(60)]
    assert shares[0] == 0.98
    assert shares[1] == 0.98 * (1 + 0.0002 * 2 ** (1 / 20))
    assert shares.index(1.0) == 44
    assert slowness.at(100 * SECOND) == 1


def test_a_slower_pace_has_whole_percents_of_its_amount():
    """So few plans are made; a pace of few requests is not slowed by a small part, and tokens are not."""
    pace = paced(Limit(200, "second"), 0.02)
    tokens = paced(Limit(200, "second", name="tokens"), 0.02)
    assert [slower(pace, share).amount for share in (0.98, 0.976, 0.7, 1.0)] == [196, 196, 140, 200]
    assert slower(paced(Limit(5, "second"), 0.02), 0.98).amount == 5
    assert slower(tokens, 0.9) is tokens


@pytest.mark.parametrize("limits", [(), "200/second"])
def test_a_fleet_that_is_refused_as_it_begins_uses_its_limit(limits: str | tuple[()]):
    """Processes begin one after another, and jitter of 50 ms lets an exact log refuse one request: after that 95 % is
    used and nothing refused, although each process had sent for less than a second when it heard of the refusal."""
    loop = VirtualLoop()
    told = {"ratelimit-policy": '"x";q=200;w=1'}
    api = SimulatedApi(
        loop, "200/second by sliding-log", lambda decision: {**told, **({} if decision else {"retry-after": "1"})}, 0.1
    )
    store = MemoryStore(clock=api.clock)

    async def call(budget: Budget, begins_ms: int) -> None:
        await asyncio.sleep(begins_ms / 1_000)
        while True:
            await budget.run_async(SimulatedRequest(api))

    for process in range(4):
        budget = Budget(limits, store=store)
        for number in range(64):
            loop.create_task(call(budget, 300 * process + number))
    try:
        loop.run(3 * SECOND)
        before = api.statuses.copy()
        loop.run(13 * SECOND)
    finally:
        loop.let_go()
    assert before[429] >= 1
    assert api.statuses[429] == before[429]
    assert api.statuses[200] - before[200] >= 0.95 * 10 * 200
