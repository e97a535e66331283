"""The step whose windows travel with the call: a ledger by hand, in each dialect by the traces of the stores."""

from __future__ import annotations

import pytest

from headgate.algorithms import NEVER, bounds

PARAMS = bounds.Params(10, 100, 200, 300, 450, 500)


def step(state, now, cost=1, params=PARAMS):
    """Answer, and charge if allowed."""
    verdict = bounds.answer(state, params, now, cost)
    if verdict.allowed or verdict.moved:
        bounds.charge(state, params, verdict.mark, cost if verdict.allowed else 0)
    return verdict.allowed, verdict.remaining, verdict.retry_us, verdict.reset_us, verdict.mark[0]


def test_the_clock_of_the_store_picks_the_window():
    """A store whose clock is a window behind or ahead of the caller's decides in its own window."""
    state = bounds.fresh(PARAMS)
    assert step(state, 150, 4) == (True, 6, 0, 50, 100)
    assert step(state, 199, 7) == (False, 6, 1, 1, 100)
    assert step(state, 200, 7) == (True, 3, 0, 100, 200)
    assert step(state, 310, 11) == (False, 10, NEVER, 0, 300)
    assert step(state, 310, 10) == (True, 0, 0, 140, 300)
    assert step(state, 460) == (True, 9, 0, 40, 450)


def test_a_clock_that_steps_back_a_little_stays_in_the_newer_window():
    """A count of the next window is read there, until its end; a count from further ahead is moved back, and kept."""
    state = [300, 9]
    assert step(state, 299) == (True, 0, 0, 151, 300)
    assert step(state, 150) == (False, 0, 50, 50, 100)
    assert state == [100, 10]


def test_a_count_under_other_seams_counts_for_the_length_of_a_window():
    """A process with other rules for a zone neither loses the count nor gets a second quota."""
    state = [170, 9]
    assert step(state, 210) == (True, 0, 0, 60, 170)
    assert step(state, 269) == (False, 0, 1, 1, 170)
    assert step(state, 270) == (True, 9, 0, 30, 200)


def test_a_refund_meets_the_window_that_was_charged():
    """Units are given back to their own window only, and never more than were counted."""
    state = [200, 3]
    bounds.give(state, PARAMS, 250, (100, 0), 2)
    assert state == [200, 3]
    bounds.give(state, PARAMS, 250, (200, 0), 5)
    assert state == [200, 0]


@pytest.mark.parametrize("now", [500, 10_000])
def test_beyond_the_seams_no_quota_is_added(now):
    """A store whose clock is further ahead than the seams keeps the count of the last window."""
    assert step([450, 10], now) == (False, 0, 1, 1, 450)
