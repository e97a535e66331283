"""A budget in virtual time: limits that are published, told by the server, or found from its refusals."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from headgate.clock import SECOND
from tests.support.virtual_api import Response, SimulatedRequest
from tests.support.virtual_budget import told_limit

pytestmark = pytest.mark.engineless


SOAK = pytest.mark.soak
CROWDS = pytest.mark.parametrize(
    ("limit", "processes"),
    [
        ("100/second", 1),
        ("100/second by fixed-window", 4),
        ("600/minute by sliding-log", 4),
        pytest.param("100/second", 4, marks=SOAK),
        pytest.param("100/second by fixed-window", 1, marks=SOAK),
        pytest.param("600/minute by sliding-log", 1, marks=SOAK),
    ],
)


@CROWDS
def test_a_published_limit_is_used_and_never_exceeded(world, limit, processes):
    """256 callers of one process or four: nothing is refused, and 97 % of what is allowed passes."""
    w = world(limit)
    for _ in range(processes):
        w.crowd(w.budget(limit.partition(" by")[0]), 256 // processes)
    w.run(20)
    allowed = w.api.limiter.limits[0].amount * 20 * SECOND / w.api.limiter.limits[0].period_us
    assert w.api.statuses[429] == 0
    assert w.api.statuses[200] >= 0.97 * allowed


@CROWDS
def test_a_told_limit_is_learned(world, limit, processes):
    """A budget without limits takes those of the first answer: 95 % is used, and 0.5 % refused at most."""
    w = world(limit, told_limit)
    budgets = [w.budget() for _ in range(processes)]
    for budget in budgets:
        w.crowd(budget, 256 // processes)
    w.run(20)
    real = w.api.limiter.limits[0]
    assert w.api.statuses[429] <= 0.005 * w.api.statuses.total()
    assert w.api.statuses[200] >= 0.95 * real.amount * 20 * SECOND / real.period_us
    assert [str(limit) for limit in budgets[0].report().learned["api.example"]] == [f"{limit.partition(' by')[0]} as x"]
    assert "learn" in {event.kind for event in w.events}


@pytest.mark.parametrize(
    ("limit", "processes"),
    [
        ("100/second", 4),
        ("50/second by fixed-window", 1),
        pytest.param("100/second", 1, marks=SOAK),
        pytest.param("50/second by fixed-window", 4, marks=SOAK),
        *(pytest.param("100/second by sliding-log", processes, marks=SOAK) for processes in (1, 4)),
    ],
)
def test_a_rate_is_found_from_refusals_alone(world, limit, processes):
    """A server that tells nothing but 429: from the 30th second on, 85 % is used and 1 % refused at most."""
    w = world(limit, lambda decision: {})
    for _ in range(processes):
        w.crowd(w.budget(), 256 // processes)
    w.run(30)
    before = w.api.statuses.copy()
    w.run(30)
    passed, refused = (w.api.statuses[status] - before[status] for status in (200, 429))
    assert passed >= 0.85 * 30 * w.api.limiter.limits[0].amount
    assert refused <= 0.01 * (passed + refused)


@pytest.mark.parametrize("processes", [1, pytest.param(4, marks=SOAK)])
def test_a_limit_that_slides_over_two_windows_is_used(world, processes):
    """Two counters tell a reset up to two windows away, at fixed instants: that is not taken for a fixed window."""
    w = world("300/minute by sliding-window", told_limit)
    for _ in range(processes):
        w.crowd(w.budget(), 32 // processes)
    w.run(120)
    assert w.api.statuses[429] <= 0.005 * w.api.statuses.total()
    assert w.api.statuses[200] >= 0.95 * 600


@pytest.mark.parametrize(("limit", "lost"), [("600/minute", 0.0), ("600/minute by sliding-log", 0.2)])
def test_another_program_that_spends_of_the_same_limit_is_left_its_part(world, limit, lost):
    """It wants six tenths: of a bucket it gets them, of an exact log most. The budget is hardly refused."""
    w = world(limit, told_limit)
    others: Counter[bool] = Counter()

    async def spend() -> None:
        while True:
            await asyncio.sleep(1 / 6)
            others[w.api.spend()] += 1

    w.crowd(w.budget("600/minute"), 64)
    w.loop.create_task(spend())
    w.run(180)  # until then a bucket has been emptied
    before, others_before = w.api.statuses.copy(), others.copy()
    w.run(120)
    ours, theirs = w.api.statuses - before, others - others_before
    assert ours[200] + theirs[True] >= 0.95 * 1200
    assert ours[429] <= 0.05 * ours.total()
    assert theirs[False] <= lost * theirs.total()


def test_a_window_that_others_have_used_up_is_waited_for(world):
    """Five of 600 remain for 55 s, later one: a place is a minute away, but the window ends before. No call fails."""
    w = world("600/minute by fixed-window", told_limit)
    w.crowd(w.budget("600/minute"), 8)
    w.run(5)
    while w.api.limiter.peek("everyone").remaining > 5:
        w.api.spend()
    w.run(70)
    assert w.api.statuses[200] > 130
    assert "refuse" not in {event.kind for event in w.events}


def test_each_key_has_the_limits_that_its_server_tells(world):
    """Two hosts tell the same window and other amounts: each is paced by its own, also under one name."""
    w = world("1000/second")
    amounts = {"slow.example": 10, "fast.example": 50}

    class Request(SimulatedRequest):
        def __init__(self, host: str) -> None:
            super().__init__(w.api)
            self.host = host

        async def send(self) -> Response:
            sent[self.host] += 1
            return Response(200, {"ratelimit-policy": f'"x";q={amounts[self.host]};w=1'})

    sent: Counter[str] = Counter()
    budget = w.budget()

    async def call(host: str) -> None:
        while True:
            await budget.run_async(Request(host))

    for host in amounts:
        w.loop.create_task(call(host))
    w.run(10)
    assert 95 <= sent["slow.example"] <= 100
    assert 480 <= sent["fast.example"] <= 500
