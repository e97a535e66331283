"""The budget of retries: a tenth of the requests, a few at any time, sleeping ones included."""

from __future__ import annotations

import heapq
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate import InvalidCall
from headgate.client.full_jitter import backoff
from headgate.client.retry_budget import RetryBudget
from headgate.clock import SECOND

pytestmark = pytest.mark.engineless


def begun(budget: RetryBudget, now: int, tried: int) -> int:
    """How many of some retries are begun."""
    return sum(budget.begin(now) for _ in range(tried))


def test_three_retries_in_ten_seconds_are_always_allowed():
    """A caller with few requests retries too; the fourth has to wait until ten seconds after the first was sent."""
    budget = RetryBudget()
    assert begun(budget, 0, 5) == 3
    for _ in range(3):
        budget.send(900_000)
    ledger = {1: 0, 10: 0, 10.8: 0, 11: 3, 12: 0}
    assert {at: begun(budget, int(at * SECOND), 5) for at in ledger} == ledger


def test_a_tenth_of_the_requests_is_allowed():
    """50 retries for 500 requests; the fraction of a retry is none."""
    budget = RetryBudget()
    for _ in range(509):
        budget.count_request(0)
    assert begun(budget, 0, 100) == 50


def test_requests_count_for_ten_seconds():
    """A tenth of the requests of an hour ago is no reason to retry now."""
    budget = RetryBudget()
    for _ in range(500):
        budget.count_request(0)
    assert begun(budget, 10 * SECOND, 100) == 3


def test_sleeping_retries_count_until_they_are_sent():
    """However long they sleep: a crowd that sleeps is load to come."""
    budget = RetryBudget()
    assert begun(budget, 0, 3) == 3
    assert begun(budget, 60 * SECOND, 1) == 0
    budget.send(60 * SECOND)
    assert begun(budget, 69 * SECOND, 1) == 0
    assert begun(budget, 71 * SECOND, 5) == 1


def test_a_cancelled_retry_gives_its_place_back():
    """A retry that was not sent is no load."""
    budget = RetryBudget()
    assert begun(budget, 0, 3) == 3
    budget.cancel()
    assert begun(budget, 0, 3) == 1


def test_share_and_least_are_settable():
    """A budget of nothing allows no retry."""
    assert begun(RetryBudget(share=0, least=0), 0, 5) == 0
    budget = RetryBudget(share=0.5, least=1)
    for _ in range(10):
        budget.count_request(0)
    assert begun(budget, 0, 9) == 5


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"share": -0.1}, "share must be a number from 0 to 1; got -0.1"),
        ({"share": float("nan")}, "share must be a number from 0 to 1; got nan"),
        ({"share": "10 %"}, "share must be a number from 0 to 1; got '10 %'"),
        ({"least": -1}, "least must be a whole number from 0; got -1"),
    ],
)
def test_bad_budgets_are_named(given, message):
    """The error tells which argument is wrong, which values fit, and what was given."""
    with pytest.raises(InvalidCall) as raised:
        RetryBudget(**given)
    assert str(raised.value) == message


@given(st.lists(st.tuples(st.sampled_from("rrrrbbsc"), st.integers(0, 3 * SECOND)), max_size=200))
def test_retries_never_exceed_their_part(steps):
    """When a retry begins, those that wait or were sent in the last 10 s are at most 3, or a tenth of the requests."""
    budget, now, waiting = RetryBudget(), 0, 0
    requests: list[int] = []
    sent: list[int] = []
    for kind, step in steps:
        now += step // 10 if kind == "r" else step
        recent = [len([at for at in each if at > now - 10 * SECOND]) for each in (requests, sent)]
        if kind == "r":
            budget.count_request(now)
            requests.append(now)
        elif kind == "b" and budget.begin(now):
            waiting += 1
            assert waiting + recent[1] <= max(3, recent[0] / 10)
        elif waiting and kind in "sc":
            waiting -= 1
            sent += [now] if kind == "s" else []
            budget.send(now) if kind == "s" else budget.cancel()


@pytest.mark.parametrize("rate", [10, 100, 1000])
def test_a_server_that_fails_half_of_the_time_has_at_most_a_tenth_more_load(rate):
    """Up to four attempts each, over a minute: at most 1.1 attempts a request, and about all of that is used."""
    budget, random = RetryBudget(), Random(rate)
    events = [(number * SECOND // rate, 0) for number in range(60 * rate)]
    sent = 0
    while events:
        now, attempt = heapq.heappop(events)
        budget.send(now) if attempt else budget.count_request(now)
        sent += 1
        if random.random() < 0.5 and attempt < 3 and budget.begin(now):
            heapq.heappush(events, (now + int(backoff(attempt, random=random.random) * SECOND), attempt + 1))
    assert 1.05 <= sent / (60 * rate) <= 1.1


def test_threads_share_the_budget_exactly():
    """Eight threads ask for 4,000 retries at once: a tenth of the requests is begun, to the last one."""
    budget = RetryBudget()

    def work(_):
        for _ in range(500):
            budget.count_request(0)
        return begun(budget, 0, 500)

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(work, range(8))) + begun(budget, 0, 1000) == 400


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_begins_with_nothing_that_waits():
    """The callers that wait are in the parent, which may hold the lock at the time."""
    budget = RetryBudget()
    assert begun(budget, 0, 3) == 3
    with budget._lock:
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            os._exit(begun(budget, 0, 5))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
