"""A budget in virtual time: the first answer, and pauses after refusals and failures."""

from __future__ import annotations

import asyncio

from headgate.client import Event, Retries
from headgate.clock import SECOND
from headgate.errors import BudgetExhausted
from tests.support.virtual_api import Lost, Response, SimulatedRequest
from tests.support.virtual_budget import told_limit


def test_one_request_is_under_way_until_the_first_answer(world):
    """A cold start with 256 callers: the server sees one request at a time until it has answered."""
    w = world("100/second", told_limit)
    w.crowd(w.budget(), 256)
    w.run(0.02)
    assert w.api.most_in_flight == 1
    w.run(5)
    assert w.api.most_in_flight > 1
    assert w.api.statuses[429] == 0


def test_a_first_request_that_fails_lets_the_next_one_try(world):
    """Until there is an answer, callers ask one by one, also after a lost connection or a cancelled caller."""
    w = world()
    lost = iter([True, True, False, False])

    def broken() -> None:
        if next(lost):
            raise Lost

    w.api.broken = broken
    budget = w.budget("100/second", retries=Retries(attempts=1))
    results = w.result(*(budget.run_async(SimulatedRequest(w.api)) for _ in range(4)))
    assert [type(each).__name__ for each in results] == ["Lost", "Lost", "Response", "Response"]
    assert w.api.most_in_flight == 1


def test_a_refusal_pauses_the_key_in_every_process(world):
    """After a 429 that tells 7 s, a caller of another process is sent 7 s later, and not a moment earlier."""
    w = world()
    answers = iter([Response(429, {"retry-after": "7"})])
    w.api.broken = lambda: next(answers, None)
    one, other = w.budget("100/second"), w.budget("100/second")

    async def told_then_other() -> list[int]:
        await one.run_async(SimulatedRequest(w.api, "POST"))
        return [w.loop.now]

    async def later() -> int:
        await asyncio.sleep(1)
        await other.run_async(SimulatedRequest(w.api))
        return int(w.loop.now)

    first, second = w.result(told_then_other(), later())
    paused_at = next(event for event in w.events if event.kind == "pause")
    assert paused_at == Event("pause", "api.example", 7.0)
    assert min(first[0], second) >= 7 * SECOND
    assert second < 7.2 * SECOND
    assert one.report().refused_there == 1


def test_callers_that_wait_when_a_pause_begins_wait_for_its_end(world):
    """A caller that has its place already looks once more before it leaves: no request is sent during a pause."""
    w = world()
    budget = w.budget("10/second")
    refused_at: list[int] = []

    def broken() -> Response | None:
        if not refused_at and w.loop.now > SECOND:
            refused_at.append(w.loop.now)
            return Response(429, {"retry-after": "5"})
        return None

    w.api.broken = broken
    w.crowd(budget, 20)
    w.run(8)
    begin = refused_at[0] // SECOND
    # Requests that were under way when the answer came are the only ones in the seconds of the pause.
    assert sum(w.api.seconds[second] for second in range(begin + 1, begin + 5)) == 0
    assert w.api.seconds[begin + 6] > 0


def test_a_pause_above_the_cap_is_told_at_once(world):
    """Three days are not slept: the caller gets the 429, and callers behind it `BudgetExhausted`."""
    w = world()
    w.api.broken = lambda: Response(429, {"retry-after": str(3 * 86_400)})
    budget, other = w.budget("100/second"), w.budget("100/second")
    (first,) = w.result(budget.run_async(SimulatedRequest(w.api)), seconds=1)
    second, third = w.result(*(each.run_async(SimulatedRequest(w.api)) for each in (budget, other)), seconds=5)
    assert first.status == 429
    assert [type(each) for each in (second, third)] == [BudgetExhausted, BudgetExhausted]
    assert second.key == "api.example"
    assert 86_300 < second.retry_after <= 86_400
    assert w.api.statuses.total() == 1


def test_told_waits_of_failures_are_spread(world):
    """100 callers that a 503 told 10 s come back between 10 and 15 s later, not as one crowd."""
    w = world("1000/second")
    outage = [True]
    w.api.broken = lambda: Response(503, {"retry-after": "10"}) if outage[0] else None
    budgets = [w.budget("1000/second", namespace=f"client-{number}") for number in range(100)]
    for budget in budgets:
        w.loop.create_task(budget.run_async(SimulatedRequest(w.api)))
    w.run(1)
    outage[0] = False
    w.run(20)
    back = {second: number for second, number in w.api.seconds.items() if second >= 1}
    assert sum(back.values()) == 100
    assert set(back) <= {10, 11, 12, 13, 14, 15}
    assert max(back.values()) <= 40
