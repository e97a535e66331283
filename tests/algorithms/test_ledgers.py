"""Worked examples: each line of a ledger is a check a person can do by hand."""

from __future__ import annotations

import pytest

from headgate import Limiter
from headgate.testing import ManualClock

NOON = 946_728_000.0  # 2000-01-01 12:00:00 UTC, a seam of every window up to an hour


def play(text: str, ledger: list[tuple[float, int, bool, int, float, float]], start: float = NOON) -> None:
    """Time, cost -> allowed, remaining, retry after, reset after."""
    clock = ManualClock()
    limiter = Limiter(text, clock=clock)
    for at, cost, *expected in ledger:
        clock.set(start + at)
        seen = limiter.hit("k", cost)
        assert [seen.allowed, seen.remaining, seen.retry_after, seen.reset_after] == expected, f"{text} at {at}"


def test_token_bucket_refills_evenly_and_never_above_its_capacity():
    """Capacity 10, refill 5/s: a half token shows in the reset, two idle seconds fill it to 10 and no further."""
    play(
        "5/second burst 10",
        [(0.0, 1, True, 9 - n, 0.0, (n + 1) / 5) for n in range(6)]
        + [(0.1, 1, True, 3, 0.0, 1.3), (0.2, 1, True, 3, 0.0, 1.4), (2.2, 0, True, 10, 0.0, 0.0)],
    )


def test_token_bucket_admits_what_has_been_refilled():
    """Capacity 10, refill 2/s: ten at 1 s pass, the eleventh fails; at 2 s exactly two pass."""
    play(
        "2/second burst 10",
        [(1.0, 10, True, 0, 0.0, 5.0), (1.0, 1, False, 0, 0.5, 5.0)]
        + [(2.0, 1, True, 1, 0.0, 4.5), (2.0, 1, True, 0, 0.0, 5.0), (2.0, 1, False, 0, 0.5, 5.0)],
    )


def test_gcra_with_a_tolerance_of_half_a_second():
    """10/s: five at 0 pass (TAT 100 ... 500), the sixth waits 100 ms; at 600 ms one passes and the TAT is 700."""
    play(
        "10/second burst 5 by gcra",
        [(0.0, 1, True, 4 - n, 0.0, (n + 1) / 10) for n in range(5)]
        + [(0.0, 1, False, 0, 0.1, 0.5), (0.6, 1, True, 4, 0.0, 0.1)],
    )


def test_redis_cell_vector():
    """max_burst 4 at 1/s is our burst 5: 6 can never fit, five leave 4 ... 0, the next waits a second."""
    play(
        "1/second burst 5 by gcra",
        [(0.0, 6, False, 5, float("inf"), 0.0)]
        + [(0.0, 1, True, 4 - n, 0.0, n + 1.0) for n in range(5)]
        + [(0.0, 1, False, 0, 1.0, 5.0)],
    )


def test_leaky_meter_drains_at_a_constant_rate():
    """Capacity 3, one unit leaks every 2 s: a full bucket takes a unit when one has leaked, not before."""
    play(
        "3/6s by leaky-bucket",
        [(0.0, 3, True, 0, 0.0, 6.0), (1.999999, 1, False, 0, 0.000001, 4.000001), (2.0, 1, True, 0, 0.0, 6.0)],
    )


def test_fixed_window_lets_twice_the_limit_pass_at_the_seam():
    """100 in the last second of a minute and 100 in the first of the next: its documented flaw."""
    play(
        "100/minute by fixed-window",
        [(59.0, 100, True, 0, 0.0, 1.0), (59.5, 1, False, 0, 0.5, 0.5), (60.0, 100, True, 0, 0.0, 60.0)],
    )


def test_fixed_window_passes_twenty_in_nineteen_seconds():
    """10/minute: 12:00:50-59 and 12:01:00-09 pass, 20 requests in 19 s."""
    clock = ManualClock(NOON)
    limiter = Limiter("10/minute by fixed-window", clock=clock)
    passed = []
    for second in range(50, 71):
        clock.set(NOON + second)
        passed.append(limiter.hit("k").allowed)
    assert passed == [True] * 20 + [False]


def test_sliding_log_forgets_at_exactly_one_period():
    """5 per 60 s: hits at 0 and 30 s; at 60 s the first has just left, so the count before that hit is 1."""
    play(
        "5/minute by sliding-log",
        [(0.0, 1, True, 4, 0.0, 60.0), (30.0, 1, True, 3, 0.0, 60.0), (59.999999, 0, True, 3, 0.0, 30.000001)]
        + [(60.0, 1, True, 3, 0.0, 60.0)],
    )


@pytest.mark.parametrize(
    ("previous", "current", "elapsed", "estimate"), [(42, 18, 15.0, 49), (84, 23, 15.0, 86), (80, 30, 15.0, 90)]
)
def test_sliding_window_blends_the_previous_window(previous, current, elapsed, estimate):
    """Previous 42, current 18, 15 s into the minute: 42 * 0.75 + 18 = 49.5, which counts as 49."""
    clock = ManualClock(NOON)
    limiter = Limiter("1000/minute by sliding-window", clock=clock)
    limiter.hit("k", previous)
    clock.set(NOON + 60)
    limiter.hit("k", current)
    clock.set(NOON + 60 + elapsed)
    assert limiter.peek("k", 0).remaining == 1000 - estimate


def test_sliding_window_admits_at_the_floor_of_its_estimate():
    """At 49.5 with a limit of 50 one more passes, and only one."""
    play(
        "50/minute by sliding-window",
        [(0.0, 42, True, 8, 0.0, 118.571429), (60.0, 1, True, 7, 0.0, 60.000001)]
        + [(75.0, 17, True, 1, 0.0, 101.666667), (75.0, 1, True, 0, 0.0, 101.842106)]
        + [(75.0, 1, False, 0, 0.714286, 101.842106)],
    )


def test_sub_windows_retry_in_the_middle_of_a_slot():
    """10/60s in 6 slots: 6 hits at 5 s, 4 at 15 s. At 60 s the six begin to leave: 5.99... of them count as 5, so one

    more fits a microsecond later; two more need them to fall below 5, a sixth of the slot: 1.666667 s.
    """
    clock = ManualClock(NOON + 5)
    limiter = Limiter("10/minute by sliding-window/6", clock=clock)
    limiter.hit("k", 6)
    clock.set(NOON + 15)
    limiter.hit("k", 4)
    clock.set(NOON + 60)
    assert [limiter.hit("k", cost).retry_after for cost in (1, 2)] == [0.000001, 1.666667]


@pytest.mark.parametrize(
    ("text", "seam"),
    [
        ("5/day by fixed-window", 946_771_200.0),  # 2000-01-02 00:00 UTC
        ("5/week by fixed-window", 946_857_600.0),  # Monday 2000-01-03 00:00 UTC
        ("5/2 weeks by fixed-window", 947_462_400.0),  # Monday 2000-01-10: 1,566 weeks after Monday 1970-01-05
        ("5/hour by fixed-window", 946_731_600.0),
    ],
)
def test_windows_are_aligned_to_utc(text, seam):
    """Days begin at midnight UTC, weeks on Monday."""
    clock = ManualClock(NOON)
    limiter = Limiter(text, clock=clock)
    limiter.hit("k", 5)
    assert limiter.hit("k").retry_after == seam - NOON


def test_a_growing_block_is_longer_for_a_key_that_is_refused_again_too_early():
    """1/s, block 10 s, then 60 s within 30 s: refused 20 s after a block, the key waits 60 s; 30 s after one, 10 s."""
    play(
        "1/second block 10s, 1m within 30s",
        [(0.0, 1, True, 0, 0.0, 1.0), (0.0, 1, False, 0, 10.0, 10.0), (5.0, 1, False, 0, 5.0, 5.0)]
        + [(30.0, 1, True, 0, 0.0, 1.0), (30.0, 1, False, 0, 60.0, 60.0), (89.999999, 1, False, 0, 1e-6, 1e-6)]
        + [(120.0, 1, True, 0, 0.0, 1.0), (120.0, 1, False, 0, 10.0, 10.0), (130.0, 1, True, 0, 0.0, 1.0)],
    )
