"""Limits of one call that a store has no room for: `on_error` answers, as for a store that is away."""

from __future__ import annotations

import logging

import pytest

from headgate import AsyncLimiter, Call, Limiter, MemoryStore, StoreError
from headgate.testing import ManualClock
from tests.support.awaiting import awaited

EACH = {"local": [True, True, False], "allow": [True] * 3, "deny": [False] * 3}
MORE_THAN_TABLES = 260


@pytest.fixture
def full():
    """A store whose tables are all in use, each by limits of another period."""
    store = MemoryStore(clock=ManualClock(), max_keys=1_000)
    filling = Limiter("1/hour", store=store, on_error="raise")
    with pytest.raises(StoreError, match="at most 256 tables"):
        for minutes in range(1, MORE_THAN_TABLES):
            filling.decide(Call(f"2 per {minutes} minutes", "k"))
    return store


@pytest.mark.parametrize("on_error", EACH)
def test_on_error_answers_for_calls_that_find_no_room(full, caplog, on_error):
    """With `local` this process counts them. The log tells it once, and other limits go on."""
    limiter = Limiter("1/hour", store=full, on_error=on_error)
    with caplog.at_level(logging.WARNING, "headgate"):
        answers = [limiter.decide(Call("2 per 1000 minutes", "ann")) for _ in range(3)]
    assert [(each.allowed, each.degraded) for each in answers] == [(allowed, True) for allowed in EACH[on_error]]
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith(f"on_error={on_error!r} answers for limits of a call: a store has at most 256 tables")
    assert not limiter.decide(Call("1/hour", "ann")).degraded


def test_raise_raises_for_calls_that_find_no_room(full):
    """The error tells what would help."""
    limiter = Limiter("1/hour", store=full, on_error="raise")
    with pytest.raises(StoreError, match="limits chosen at run time should differ in name or in numbers"):
        limiter.decide(Call("2 per 1000 minutes", "ann"))


@awaited
async def test_on_error_answers_for_awaited_calls_that_find_no_room(full):
    """As in `Limiter`."""
    limiter = AsyncLimiter("1/hour", store=full)
    answers = [await limiter.decide(Call("2 per 1000 minutes", "ann")) for _ in range(3)]
    assert [(each.allowed, each.degraded) for each in answers] == [(allowed, True) for allowed in EACH["local"]]


PLAN = "900/hour by sliding-log"
"""Its states are larger than those of the limiter's own limit, so it needs a table that is not there."""


def without_room_for_plans(kind, on_error):
    """Return a limiter on a store whose tables are all in use."""
    store = MemoryStore(clock=ManualClock(), max_keys=1_000)
    limiter = kind("2/hour by sliding-log", store=store, on_error=on_error)
    filling = Limiter("1/hour", store=store, on_error="raise")
    with pytest.raises(StoreError, match="at most 256 tables"):
        for minutes in range(1, MORE_THAN_TABLES):
            filling.decide(Call(f"2 per {minutes} minutes", "k"))
    return limiter


VERBS = {
    "hit": lambda limiter: limiter.hit("ann", limit=PLAN),
    "peek": lambda limiter: limiter.peek("ann", limit=PLAN),
    "take_up_to": lambda limiter: limiter.take_up_to("ann", 1, limit=PLAN),
    "acquire": lambda limiter: limiter.acquire("ann", timeout=0, limit=PLAN),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("on_error", EACH)
def test_on_error_answers_for_a_plan_that_finds_no_room(caplog, on_error, verb):
    """A larger log, chosen for one call, is no outage of the caller; the log tells it once."""
    limiter = without_room_for_plans(Limiter, on_error)
    with caplog.at_level(logging.WARNING, "headgate"):
        answers = [VERBS[verb](limiter) for _ in range(2)]
    assert [(each.allowed, each.degraded) for each in answers] == [(on_error != "deny", True)] * 2
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith(f"on_error={on_error!r} answers for limits of a call: a store has at most 256 tables")
    assert not limiter.hit("ann").degraded


@pytest.mark.parametrize("verb", ["permit", "reserve"])
def test_on_error_answers_for_a_permit_and_a_reservation_that_find_no_room(verb):
    """They can be given back like all others."""
    limiter = without_room_for_plans(Limiter, "local")
    held = getattr(limiter, verb)("ann", 1, 0, limit=PLAN)
    assert held and held.decision.degraded and held.decision.remaining == 899
    limiter.refund(held.decision)


@pytest.mark.parametrize("verb", VERBS)
@awaited
async def test_on_error_answers_for_an_awaited_plan_that_finds_no_room(verb):
    """As in `Limiter`."""
    decision = await VERBS[verb](without_room_for_plans(AsyncLimiter, "local"))
    assert (decision.allowed, decision.degraded) == (True, True)


def test_raise_raises_for_a_plan_that_finds_no_room():
    """The error tells what would help."""
    limiter = without_room_for_plans(Limiter, "raise")
    with pytest.raises(StoreError, match="limits chosen at run time should differ in name or in numbers"):
        limiter.hit("ann", limit=PLAN)
