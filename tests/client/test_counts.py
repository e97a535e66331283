"""Counts over the last seconds, compared with a list of all additions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.client.counts import Counts

pytestmark = pytest.mark.engineless


def test_a_ledger_of_slots():
    """Three slots of 10: an addition counts until three slots later."""
    counts = Counts(3, 10)
    counts.add(5)
    counts.add(19, 2)
    ledger = {5: 3, 19: 3, 20: 3, 29: 3, 30: 2, 39: 2, 40: 0, 1000: 0}
    assert {now: counts.total(now) for now in ledger} == ledger


def test_a_clock_that_goes_back_adds_to_the_newest_slot():
    """Nothing is lost and nothing is counted for longer than it would be otherwise."""
    counts = Counts(3, 10)
    counts.add(100)
    counts.add(50)
    assert [counts.total(now) for now in (50, 100, 129, 130)] == [2, 2, 2, 0]


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 5)), max_size=60), st.integers(1, 5), st.integers(1, 20))
def test_the_sum_is_that_of_the_slots_that_have_not_passed(steps, slots, width):
    """Additions in the current slot and those before it, up to the number of slots."""
    counts, now, added = Counts(slots, width), 0, []
    for step, amount in steps:
        now += step
        counts.add(now, amount)
        added.append((now // width, amount))
        assert counts.total(now) == sum(each for slot, each in added if slot > now // width - slots)
