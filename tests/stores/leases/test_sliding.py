"""Leases of sliding windows, on real servers: a lease outlives the seam, and tokens come back to their own slot."""

from __future__ import annotations

import pytest

from headgate import Lease, Limit
from tests.support.leasing import SLIDING, SLOTS, START, drain, warm
from tests.support.sliding_laws import admits

LONG = Lease(validity=3600)
BOTH = pytest.mark.parametrize(("limit", "seam"), [(SLIDING, 800), (SLOTS, 20)], ids=["two windows", "slots"])
"""The limit, and the seconds from the start to the end of its window or slot."""

SHORT = pytest.mark.parametrize("limit", [f"10000/10 seconds by sliding-window/{slots}" for slots in (1, 10)])


@BOTH
def test_tokens_outlive_the_window_in_which_they_were_charged(bank, limit, seam):
    """Their charge still counts after the seam, so they are spent until their validity ends, without a question."""
    limiter = bank.limiter(limit, lease=LONG)
    warm(limiter, hits=500)
    bank.clock.set(START + seam + 1)
    with bank.asked(0):
        assert limiter.hit("k").allowed


@SHORT
def test_the_validity_alone_ends_a_lease(bank, limit):
    """Tokens whose charge has left the window are spent within the time that the bound adds to an interval."""
    limiter = bank.limiter(limit, lease=LONG)
    warm(limiter, hits=200)
    bank.clock.advance(25)
    assert bank.charged(limit) == 0
    with bank.asked(0):
        assert limiter.hit("k").allowed


@BOTH
def test_tokens_are_void_when_their_validity_ends(bank, limit, seam):
    """A lease that crosses the seam is spent to the last microsecond of its validity, and not at it."""
    bank.clock.set(START + seam - 1)
    limiter = bank.limiter(limit, lease=Lease(validity=2))
    warm(limiter)
    bank.clock.us += 1_999_999
    with bank.asked(0):
        assert limiter.hit("k").allowed
    bank.clock.us += 1
    before = bank.trips()
    assert limiter.hit("k").allowed
    assert bank.trips() > before


@pytest.mark.parametrize(("limit", "half_gone"), [(SLIDING, 800 + 1800), (SLOTS, 3600 + 20 - 30)])
def test_a_give_back_returns_the_part_that_still_counts(bank, limit, half_gone):
    """Half of the slot has left the window: of 500 spent units 250 count, as if no others had ever been charged."""
    limiter = bank.limiter(limit, lease=LONG)
    warm(limiter, hits=500)
    held = bank.charged(limit) - 500
    assert held > 100
    bank.clock.set(START + half_gone)
    assert bank.charged(limit) == (500 + held) // 2
    limiter.close()
    assert bank.charged(limit) == 250
    limiter.close()
    assert bank.charged(limit) == 250


@BOTH
def test_a_give_back_takes_nothing_from_a_newer_slot(bank, limit, seam):
    """The units that another process charged after the seam are all still counted when the old tokens are back."""
    limiter = bank.limiter(limit, lease=LONG)
    warm(limiter, hits=500)
    bank.clock.set(START + seam)
    assert bank.plain(limit).hit("k", 700).allowed
    limiter.close()
    assert bank.charged(limit) == 500 + 700
    bank.clock.set(START + seam + 2 * 3600 - 1)  # the slot of the 500 has left, the one of the 700 is leaving
    gone = 3599 / 3600 if limit == SLIDING else 1
    assert bank.charged(limit) == int(700 * (1 - gone))


@SHORT
def test_tokens_that_do_not_count_any_more_are_not_worth_a_message(bank, limit):
    """Their slot has left the window: a close asks nothing."""
    limiter = bank.limiter(limit)
    assert warm(limiter, hits=200) < bank.charged(limit)
    bank.clock.advance(20)
    with bank.asked(0):
        limiter.close()


@BOTH
def test_a_refusal_tells_when_the_oldest_units_leave(bank, limit, seam):
    """The wait is that of the server, told without a question until it is over; then the key is admitted."""
    limiter = bank.limiter(limit)
    drain(limiter)
    expected = bank.plain(limit).hit("k")
    with bank.asked(0):
        refusals = [limiter.hit("k") for _ in range(100)]
    assert not expected.allowed
    assert {each.retry_after for each in refusals} == {expected.retry_after} == {refusals[0].retry_after}
    bank.clock.us += round(expected.retry_after * 1_000_000)
    assert limiter.hit("k").allowed
    assert not limiter.hit("k").allowed


@pytest.mark.parametrize("limit", ["100/second by sliding-window", "100/second by sliding-window/5"])
def test_a_fleet_admits_at_most_what_the_window_admits_in_that_time_and_a_validity(bank, limit):
    """Four nodes, hit until refused, every tenth of a second: the bound holds between any two instants."""
    limiters = [bank.limiter(limit, lease=Lease(validity=0.5)) for _ in range(4)]
    plain, exact, admitted = bank.plain(limit), 0, []
    for _ in range(30):
        admitted.append(sum(map(drain, limiters)))
        exact += drain(plain, "alone")
        bank.clock.advance(0.1)
    for start in range(30):
        for end in range(start, 30):
            assert sum(admitted[start : end + 1]) <= admits(Limit.parse(limit), (end - start) * 100_000 + 500_000)
    assert sum(admitted) >= 0.98 * exact
