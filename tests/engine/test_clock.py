"""The clock: wall time that never steps, told alike to both engines."""

from __future__ import annotations

import sys
import time

import pytest

from headgate import HeadgateError, Limiter
from headgate.clock import MINUTE, SECOND, STEADY_CLOCK_ID, HandClock, SystemClock, write_seconds


def test_the_counter_runs_through_suspend():
    """CLOCK_BOOTTIME on Linux: CLOCK_MONOTONIC stops while the machine sleeps."""
    if sys.platform != "linux":
        pytest.skip("another system, another counter")
    assert STEADY_CLOCK_ID == time.CLOCK_BOOTTIME


def test_a_step_of_the_wall_clock_changes_nothing(monkeypatch):
    """The wall clock is read once, at the start; after that an NTP step is not seen."""
    clock = SystemClock()
    before = clock.now_us()
    monkeypatch.setattr(time, "time_ns", lambda: 0)
    assert before <= clock.now_us() < before + 60_000_000


def test_the_clock_tells_utc():
    """Whole microseconds since the epoch, as the wall clock has them."""
    assert abs(SystemClock().now_us() - time.time_ns() // 1000) < 1_000_000


def test_the_engine_reads_the_same_clock():
    """The instant a log writes lies between two readings of the store's clock."""
    clock = SystemClock()
    limiter = Limiter("10/minute by sliding-log", clock=clock)
    before = clock.now_us()
    stamp = limiter.hit("k").verdicts[0].mark[0]
    assert before <= stamp <= clock.now_us()


def test_a_clock_set_by_hand_is_what_the_engine_reads():
    """An experiment writes the instant into the clock, and the next decision is made at it."""
    clock = HandClock()
    limiter = Limiter("1/minute", clock=clock)
    assert clock.now_us() == 0
    assert [limiter.hit("k").allowed, limiter.hit("k").allowed] == [True, False]
    clock.us = MINUTE - 1
    assert limiter.hit("k").retry_after == 0.000001
    clock.us = MINUTE
    assert limiter.hit("k").allowed


@pytest.mark.parametrize(("us", "text"), [(0, "0"), (1, "0.000001"), (1_500_000, "1.5"), (2_592 * 10**9, "2592000")])
def test_waits_are_written_as_people_read_them(us, text):
    """A wait is never written with a power of ten or a trailing zero."""
    assert write_seconds(us) == text


@pytest.mark.parametrize("us", [-1, 2**53, 2**80, 1.5, True, None])
def test_a_clock_set_by_hand_must_tell_whole_microseconds(us):
    """The engine reads the field without a call, and refuses what it would refuse from any other clock."""
    clock = HandClock(1)
    limiter = Limiter("1/second", clock=clock)
    assert limiter.hit("k").allowed
    clock.us = us
    with pytest.raises(HeadgateError, match="whole microseconds"):
        limiter.hit("k")
    clock.us = 1 + SECOND
    assert limiter.hit("k").allowed
