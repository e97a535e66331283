"""The pace of a caller: ledgers of the limits that it keeps to, and of the instants at which requests leave."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.client import Budget
from headgate.client.pacing import found, large_enough, named, paced, slowed
from headgate.clock import MINUTE, SECOND
from headgate.errors import InvalidCall
from headgate.limit import Limit, as_limits
from headgate.testing import ManualClock


def numbers(limit: Limit) -> tuple[int, int, int]:
    """Return amount, period in milliseconds, and burst."""
    return limit.amount, limit.period_us // 1_000, limit.burst


@pytest.mark.parametrize(
    ("limit", "headroom", "pace"),
    [
        ("200/second", 0.02, (200, 1_021, 2)),
        ("5/second", 0.02, (5, 1_021, 1)),
        ("5000/hour", 0.02, (5_000, 3_673_470, 50)),
        ("5000/hour burst 20", 0.02, (5_000, 3_673_470, 20)),
        ("1000/minute", 0, (1_000, 60_000, 1)),
        ("1000/minute", 0.5, (1_000, 120_000, 250)),
        ("200000/minute as tokens", 0.02, (200_000, 61_225, 20_000)),
    ],
)
def test_a_pace_is_slower_than_its_limit_and_has_a_small_burst(limit: str, headroom: float, pace: tuple[int, int, int]):
    """98 % of the rate; a burst of 1 % of the amount, of 10 % for tokens, at least 1 and at most that of the limit."""
    assert numbers(paced(as_limits(limit)[0], headroom)) == pace


@given(st.integers(100, 10**6), st.integers(1, 86_400), st.floats(0.001, 0.5))
def test_rate_and_burst_never_exceed_the_limit_in_any_window(amount: int, period: int, headroom: float):
    """A bucket lets burst + rate x period pass in a period: within the limit, if the burst is more than 1.

    Tokens have a larger burst, and windows beside their pace.
    """
    pace = paced(Limit(amount, period), headroom)
    if pace.burst > 1:
        assert pace.burst * pace.period_us + pace.amount * period * SECOND <= amount * pace.period_us


def test_limits_without_a_name_count_requests():
    """Several are told apart by numbers; names that were given stay."""
    assert [*named(as_limits("2/second; 30/minute; 100/hour as search"))] == ["requests", "requests.2", "search"]


def test_a_limit_in_flight_has_no_pace():
    """It is no rate: a permit is held for it."""
    with pytest.raises(InvalidCall, match="permit"):
        paced(as_limits("20 in flight")[0], 0.02)


@pytest.mark.parametrize(
    ("cost", "burst"), [(1, 20_000), (20_000, 20_000), (20_001, 21_000), (65_432, 66_000), (10**9, 200_000)]
)
def test_a_large_call_has_a_burst_of_its_own(cost: int, burst: int):
    """In two digits, so that few plans are made; at most the whole amount."""
    pace = paced(Limit(200_000, MINUTE / SECOND, name="tokens"), 0.02)
    assert large_enough(pace, cost).burst == burst


@pytest.mark.parametrize(
    ("rate", "pace"), [(50.0, (50_000, 10**6, 1)), (123.456, (123_456, 10**6, 2)), (0.2, (200, 10**6, 1))]
)
def test_a_found_rate_is_a_pace_of_thousandths(rate: float, pace: tuple[int, int, int]):
    """Its burst is the headroom of one second, at least 1."""
    assert numbers(found(rate, 0.02)) == pace


@pytest.mark.parametrize(
    ("remaining", "seconds", "amount"),
    [
        (3_000, 3_600, 3_000),
        (2_500, 3_600, 2_500),
        (100, 360, 1_000),
        (1, 3_600, 1),
        (0, 3_600, 1),
        (5_000, 600, 5_000),
    ],
)
def test_what_remains_is_spread_until_it_is_renewed(remaining: int, seconds: int, amount: int):
    """The pace of an hour at which it lasts, in two digits; never faster than the limit's own."""
    pace = slowed(paced(Limit(5_000, "hour"), 0), remaining, seconds * SECOND)
    assert (pace.amount, pace.period_us) == (amount, 3_600 * SECOND)


def test_a_ledger_of_requests_that_leave():
    """`200/second`: a burst of two, then one every 5.105 ms; after an idle second again two, not two hundred."""
    clock, left = ManualClock(), []
    call = Budget("200/second", clock=clock).paced("k")(lambda: left.append(clock.us))
    for _ in range(5):
        call()
    clock.set(2)
    for _ in range(4):
        call()
    assert left == [0, 0, 5_105, 10_210, 15_315, 2_000_000, 2_000_000, 2_005_105, 2_010_210]
