"""A budget in virtual time: callers wait for their turn, listen to the server, and give up when they must."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest

from headgate.client import Budget, Event, Report, Retries, deadline
from headgate.clock import SECOND
from headgate.errors import BudgetExhausted, InvalidCall
from headgate.stores import MemoryStore
from headgate.testing import ManualClock
from tests.support.virtual import VirtualLoop
from tests.support.virtual_api import Lost, Response, SimulatedApi, SimulatedRequest


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


@pytest.fixture
def world():
    made: list[World] = []

    def make(*args: Any, **options: Any) -> World:
        made.append(World(*args, **options))
        return made[-1]

    yield make
    for each in made:
        each.end()


@pytest.mark.parametrize("processes", [1, 4])
@pytest.mark.parametrize("limit", ["100/second", "100/second by fixed-window", "600/minute by sliding-log"])
def test_a_published_limit_is_used_and_never_exceeded(world, limit, processes):
    """256 callers of one process or four: nothing is refused, and 97 % of what is allowed passes."""
    w = world(limit)
    for _ in range(processes):
        w.crowd(w.budget(limit.partition(" by")[0]), 256 // processes)
    w.run(20)
    allowed = w.api.limiter.limits[0].amount * 20 * SECOND / w.api.limiter.limits[0].period_us
    assert w.api.statuses[429] == 0
    assert w.api.statuses[200] >= 0.97 * allowed


@pytest.mark.parametrize("processes", [1, 4])
@pytest.mark.parametrize("limit", ["100/second", "100/second by fixed-window", "600/minute by sliding-log"])
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


@pytest.mark.parametrize("processes", [1, 4])
@pytest.mark.parametrize("limit", ["100/second", "50/second by fixed-window", "100/second by sliding-log"])
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


def test_a_budget_reports_what_it_did(world):
    """Sent, retried, refused there and here, paused; nothing was learned."""
    w = world()
    answers = iter([Response(429, {"retry-after": "2"})])
    w.api.broken = lambda: next(answers, None)
    budget = w.budget("10/second")
    assert budget.report() == Report()
    w.result(budget.run_async(SimulatedRequest(w.api)))
    report = budget.report()
    assert report == Report(sent=2, waited=report.waited, retried=1, refused_there=1, paused=1)
    assert [event.kind for event in w.events] == ["refused", "pause", "retry"]


def test_a_listener_that_raises_loses_no_request(world, caplog):
    """The error is logged, and the request goes on."""
    w = world()
    answers = iter([Response(429, {"retry-after": "2"})])
    w.api.broken = lambda: next(answers, None)
    budget = Budget("10/second", store=w.store, on_event=lambda event: 1 / 0)
    (response,) = w.result(budget.run_async(SimulatedRequest(w.api)))
    assert response.status == 200
    assert "on_event of a budget failed" in caplog.text


def test_threads_wait_for_their_turn():
    """`run` is the same for threads: the tenth request of `5/second` is sent 1.84 s after the first."""
    clock, sent = ManualClock(), []

    class Request(SimulatedRequest):
        def send(self) -> Response:
            sent.append(clock.us)
            return Response(200, {})

    budget = Budget("5/second", clock=clock)
    for _ in range(10):
        assert budget.run(Request(None)).status == 200
    steps = {after - before for before, after in pairwise(sent)}
    assert len(sent) == 10
    assert steps <= {204_200, 204_201}


def test_paced_functions_wait_for_their_turn():
    """`paced` serves any function under one key, in the order of its calls."""
    clock, calls = ManualClock(), []
    budget = Budget("5/second", clock=clock)

    @budget.paced("search")
    def search(word: str) -> str:
        calls.append(clock.us)
        return word.upper()

    assert [search(word) for word in "abc"] == ["A", "B", "C"]
    assert calls == [0, 204_200, 408_400]
    assert search.__name__ == "search"
    assert budget.report().sent == 3


def test_a_paced_function_with_a_cost_takes_as_many_turns():
    """Calls that cost 2 leave half as often, also where the burst is 1."""
    clock = ManualClock()
    calls: list[int] = []
    export = Budget("5/second", clock=clock).paced("export", cost=2)(lambda: calls.append(clock.us))
    for _ in range(3):
        export()
    assert [round(at / 1000) for at in calls] == [0, 408, 817]


def test_paced_coroutines_wait_for_their_turn(world):
    """An `async def` is awaited in its turn."""
    w = world()
    budget, calls = w.budget("5/second"), []

    @budget.paced("search")
    async def search(word: str) -> str:
        calls.append(w.loop.now)
        return word.upper()

    assert w.result(*(search(word) for word in "abc")) == ["A", "B", "C"]
    assert calls == [0, 204_200, 408_400]


def test_a_key_function_chooses_the_budget_of_a_call(world):
    """Calls of two keys do not wait for each other; a long key is one key all the same."""
    w = world("1000/second")
    budget = w.budget("1/second", key=lambda request: request.headers["account"])
    requests = [SimulatedRequest(w.api, headers={"account": name}) for name in ("a", "b" * 10_000)]
    w.result(*(budget.run_async(request) for request in requests), seconds=0.2)
    assert w.api.statuses == {200: 2}


@pytest.mark.parametrize("key", ["", None, 3])
def test_a_key_that_is_no_key_is_an_error(world, key):
    """A key function must return a string; a budget that counted nothing would pace nothing."""
    w = world()
    (error,) = w.result(w.budget("1/second", key=lambda request: key).run_async(SimulatedRequest(w.api)))
    assert isinstance(error, InvalidCall)
    assert "the key of a budget must be a string" in str(error)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"limits": "10/second", "headroom": 0.6}, "headroom is the part"),
        ({"limits": "10/second", "refusal": "no"}, "refusal is"),
        ({"limits": "10/second", "key": "hots"}, "did you mean 'host'"),
        ({"limits": "10/second", "key": "model"}, "usage=chat"),
        ({"limits": "100/minute as tokens"}, "usage=chat"),
        ({"limits": "20 in flight"}, "permit"),
        ({"limits": "10/second", "dedline": 3}, "dedline"),
        ({"limits": "10/second", "retries": 3}, "retries"),
        ({"limits": "10/second", "on_event": 3}, "on_event"),
    ],
)
def test_wrong_arguments_are_told(arguments, message):
    """Each message names the argument, and what to write instead."""
    with pytest.raises((InvalidCall, TypeError), match=message):
        Budget(**arguments)


def test_several_limits_without_names_all_count(world):
    """`2/second; 3/minute` paces by both."""
    w = world("1000/second")
    budget = w.budget("2/second; 30/minute")
    w.crowd(budget, 4)
    w.run(60)
    assert 29 <= w.api.statuses[200] <= 30
