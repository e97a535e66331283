"""A budget in virtual time: servers that fail are asked less, and get few retries."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from headgate.errors import BudgetExhausted
from tests.support.virtual_api import Response, SimulatedRequest

pytestmark = pytest.mark.engineless


def test_a_server_that_fails_is_asked_less_and_less(world):
    """The throttle: of a server that answers only 500, nine requests in ten are refused here."""
    w = world("1000/second")
    w.api.broken = lambda: Response(500, {})
    budget = w.budget("1000/second")
    results = []
    for _ in range(400):
        results += w.result(budget.run_async(SimulatedRequest(w.api)), seconds=0.2)
    refused = [each for each in results if isinstance(each, BudgetExhausted)]
    assert {each.reason for each in refused} == {"the server fails most requests"}
    assert 300 <= len(refused) <= 370
    assert budget.report().refused_here == len(refused)


def test_a_server_that_fails_half_of_the_time_gets_few_retries(world):
    """The retry budget: at most 1.1 attempts a request, and the callers get the answers that there are."""
    w = world("1000/second")
    turn = iter(range(10**9))
    w.api.broken = lambda: Response(503, {}) if next(turn) % 2 else None
    budget = w.budget("100/second")
    requests = 0

    async def call() -> None:
        nonlocal requests
        while True:
            requests += 1
            with suppress(BudgetExhausted):  # by chance, a few more than half have failed
                await budget.run_async(SimulatedRequest(w.api))

    for _ in range(16):
        w.loop.create_task(call())
    w.run(60)
    assert requests > 3000
    assert w.api.statuses.total() <= 1.1 * requests + 3


def test_retried_answers_end_before_the_next_attempt(world):
    """A response that the caller does not see is closed."""
    w = world()
    closed = []

    class Request(SimulatedRequest):
        async def close(self, response: Any) -> None:
            closed.append(response.status)

    answers = iter([Response(503, {"retry-after": "1"}), Response(429, {"retry-after": "1"})])
    w.api.broken = lambda: next(answers, None)
    (response,) = w.result(w.budget("10/second").run_async(Request(w.api, "POST")))
    assert (response.status, closed) == (200, [503, 429])
