"""Threads, functions and coroutines that wait for their turn in a budget."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import pairwise

import pytest

from headgate.client import Budget, Event
from headgate.errors import BudgetExhausted, InvalidCall
from headgate.testing import ManualClock
from tests.support.virtual_api import Response, SimulatedRequest


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


def test_a_paced_call_that_is_refused_here_is_reported():
    """Its refusal counts, and is told, as that of a request is."""
    events: list[Event] = []
    budget = Budget("1/hour", clock=ManualClock(), on_event=events.append)
    call = budget.paced("search")(lambda: "found")
    assert call() == "found"
    with pytest.raises(BudgetExhausted):
        call()
    assert (budget.report().sent, budget.report().refused_here) == (1, 1)
    assert [(event.kind, event.key) for event in events] == [("refuse", "search")]


async def stream() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize("wrong", ["search", None, stream])
def test_paced_takes_a_function(wrong):
    """A generator of an event loop would wait in its thread, and hold the loop up: it is refused as others are."""
    with pytest.raises(InvalidCall, match="paced takes a function, def or async def"):
        Budget("5/second").paced("search")(wrong)
