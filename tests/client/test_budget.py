"""A budget in virtual time: keys, limits, reports and wrong arguments."""

from __future__ import annotations

import pytest

from headgate.client import Budget, Chat, Report
from headgate.errors import InvalidCall
from tests.support.virtual_api import Response, SimulatedRequest


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
        ({"limits": "10/second", "usage": 3}, "usage takes chat"),
        ({"limits": "10/second", "usage": Chat}, "usage takes chat"),
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
