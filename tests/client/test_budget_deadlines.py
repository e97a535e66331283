"""A budget in virtual time: deadlines, and callers that are cancelled."""

from __future__ import annotations

import pytest

from headgate.client import deadline
from headgate.clock import SECOND
from headgate.errors import BudgetExhausted, InvalidCall
from tests.support.virtual_api import SimulatedRequest


def test_a_deadline_that_cannot_be_kept_is_refused_at_once(world):
    """The next place is almost a second away: a caller with 0.2 s is told so without waiting, and nothing is sent."""
    w = world()
    budget = w.budget("1/second")

    async def hurried() -> float:
        with deadline(0.2):
            await budget.run_async(SimulatedRequest(w.api))
        return 0.0

    w.result(budget.run_async(SimulatedRequest(w.api)), seconds=0.5)
    (error,) = w.result(hurried(), seconds=0.001)
    assert isinstance(error, BudgetExhausted)
    assert error.reason == "the budget is used up"
    assert 0.2 < error.retry_after <= 1.02
    assert budget.report().sent == 1
    assert [event.kind for event in w.events if event.kind == "refuse"] == ["refuse"]


def test_deadlines_nest_and_the_earlier_one_counts():
    """An inner block cannot extend the time of an outer one."""
    from headgate.client.deadlines import time_left

    assert time_left() is None
    with deadline(1), deadline(100):
        left = time_left()
        assert left is not None and left <= 1
    assert time_left() is None


@pytest.mark.parametrize("seconds", [-1, float("nan"), "5", None, True])
def test_a_deadline_is_a_number_of_seconds(seconds):
    """Another value is `InvalidCall`."""
    with pytest.raises(InvalidCall, match="deadline"), deadline(seconds):
        pass


def test_cancelled_callers_give_back_what_was_not_sent(world):
    """Of 200 callers, 190 are cancelled while they wait: the next caller is sent as if they had never come."""
    w = world()
    budget = w.budget("10/second")
    tasks = [w.loop.create_task(budget.run_async(SimulatedRequest(w.api))) for _ in range(200)]
    w.run(0.95)
    sent = budget.report().sent
    assert 8 <= sent <= 10
    for task in tasks[10:]:
        task.cancel()
    w.run(0.5)
    assert budget.report().sent <= 11
    w.run(5)
    before = w.loop.now
    w.result(budget.run_async(SimulatedRequest(w.api)), seconds=0.2)
    assert w.loop.now - before <= 0.2 * SECOND
    assert w.api.statuses == {200: budget.report().sent}


@pytest.mark.parametrize("after", [0.0, 0.001, 0.01, 0.03, 0.05, 0.1, 0.15, 0.25])
def test_books_are_exact_wherever_a_caller_is_cancelled(world, after):
    """A caller that is cancelled at any await is either sent and counted, or charged nothing."""
    w = world("100/second")
    budget = w.budget("10/second")
    w.crowd(budget, 3)
    w.run(2)
    victim = w.loop.create_task(budget.run_async(SimulatedRequest(w.api)))
    w.run(after)
    victim.cancel()
    w.run(10)
    sent = budget.report().sent
    most = int(1 + (12 + after) * 10 / 1.021)  # the burst of 1, and 98 % of 10 a second
    assert sent in (most - 1, most)
