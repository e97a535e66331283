"""Backoff: a ledger of spans, the told time, and the numbers that are refused."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate import InvalidCall
from headgate.client.full_jitter import backoff

pytestmark = pytest.mark.engineless


@pytest.mark.parametrize(
    ("attempt", "span"),
    [(0, 0.5), (1, 1), (2, 2), (3, 4), (4, 8), (5, 16), (6, 30), (7, 30), (1100, 30), (10**9, 30), (10**400, 30)],
)
def test_the_span_doubles_up_to_the_ceiling(attempt, span):
    """0.5 s, 1 s, 2 s and so on, and never more than 30 s, however many attempts have failed."""
    assert backoff(attempt, random=lambda: 0.0) == 0
    assert backoff(attempt, random=lambda: 0.5) == span / 2
    assert backoff(attempt, random=lambda: 1.0) == span


def test_base_and_ceiling_are_settable():
    """A base above the ceiling is the ceiling; a ceiling of 0 is no wait at all."""
    assert backoff(3, base=2, ceiling=100, random=lambda: 1.0) == 16
    assert backoff(0, base=8, ceiling=5, random=lambda: 1.0) == 5
    assert backoff(9, ceiling=0, random=lambda: 1.0) == 0


@pytest.mark.parametrize("told", [0, 0.25, 7, 259_200])
def test_a_told_time_wins(told):
    """The time that the server told is the wait, without chance, and also above the ceiling."""
    assert backoff(5, retry_after=told, random=lambda: pytest.fail("chance was asked")) == told


@given(st.integers(0, 10**12), st.floats(1e-9, 1e9), st.floats(0, 1e9))
def test_a_wait_is_never_above_the_ceiling(attempt, base, ceiling):
    """Whatever the numbers are, the wait is finite, not negative, and at most the ceiling."""
    assert 0 <= backoff(attempt, base, ceiling) <= ceiling


def test_chance_spreads_the_callers():
    """A thousand callers that failed together are spread over the whole span: none of ten parts has over 150."""
    chance = Random(1).random
    waits = [backoff(3, random=chance) for _ in range(1000)]
    assert max(sum(part <= wait / 0.4 < part + 1 for wait in waits) for part in range(10)) <= 150


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"attempt": -1}, "attempt must be a whole number from 0; got -1"),
        ({"attempt": 1.5}, "attempt must be a whole number from 0; got 1.5"),
        ({"attempt": True}, "attempt must be a whole number from 0; got True"),
        ({"attempt": "1"}, "attempt must be a whole number from 0; got '1'"),
        ({"attempt": 0, "base": 0}, "base must be a number of seconds above 0; got 0"),
        ({"attempt": 0, "base": float("nan")}, "base must be a number of seconds above 0; got nan"),
        ({"attempt": 0, "ceiling": -1}, "ceiling must be a number of seconds from 0; got -1"),
        ({"attempt": 0, "ceiling": float("inf")}, "ceiling must be a number of seconds from 0; got inf"),
        ({"attempt": 0, "ceiling": None}, "ceiling must be a number of seconds from 0; got None"),
        ({"attempt": 0, "retry_after": -0.1}, "retry_after must be a number of seconds from 0; got -0.1"),
        ({"attempt": 0, "retry_after": "5"}, "retry_after must be a number of seconds from 0; got '5'"),
        ({"attempt": 0, "retry_after": 1, "base": -1}, "base must be a number of seconds above 0; got -1"),
    ],
)
def test_bad_arguments_are_named(given, message):
    """The error tells which argument is wrong, which values fit, and what was given."""
    with pytest.raises(InvalidCall) as raised:
        backoff(**given)
    assert str(raised.value) == message


def test_an_integer_too_large_for_a_float_is_refused():
    """It is an error of ours, not an overflow, and its message stays short."""
    with pytest.raises(InvalidCall) as raised:
        backoff(0, base=10**5000)
    assert str(raised.value) == "base must be a number of seconds above 0; got a int"
