"""Windows and logs against brute force: lists of what was admitted, counted again for every question."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from headgate import Limit, Limiter
from headgate.testing import ManualClock

PERIOD = 1000  # us; short, so that every instant of a period can be tried


def slot_of(now: int, slots: int) -> int:
    return now * slots // PERIOD


def estimate(admitted: list[tuple[int, int]], now: int, slots: int) -> int:
    """Whole slots, plus the covered part of the slot that is leaving, rounded down."""
    current = slot_of(now, slots)
    phase = Fraction(now * slots, PERIOD) - current
    whole = sum(cost for at, cost in admitted if current - slots < slot_of(at, slots) <= current)
    leaving = sum(cost for at, cost in admitted if slot_of(at, slots) == current - slots)
    return whole + int(leaving * (1 - phase))


def fixed(admitted: list[tuple[int, int]], now: int, _: int) -> int:
    return sum(cost for at, cost in admitted if at // PERIOD == now // PERIOD)


def log(admitted: list[tuple[int, int]], now: int, _: int) -> int:
    return sum(cost for at, cost in admitted if at > now - PERIOD)


def first_fit(count, admitted, now, slots, room):
    return next(at for at in range(now, now + 2 * PERIOD + 2) if count(admitted, at, slots) <= room)


@settings(max_examples=50)
@given(
    kind=st.sampled_from(
        [("fixed-window", fixed, 0), ("sliding-log", log, 0)]
        + [("sliding-window" + (f"/{n}" if n > 1 else ""), estimate, n) for n in (1, 2, 3, 7, 10, 25)]
    ),
    limit=st.integers(10, 40),
    trace=st.lists(
        st.tuples(st.sampled_from(["wait", "retry", "early", "reset"]), st.integers(0, 700), st.integers(1, 15)),
        max_size=30,
    ),
)
def test_windows_count_as_brute_force_does(kind, limit, trace):
    """Admission, what remains, the wait and the reset are those found by trying every microsecond."""
    algorithm, count, slots = kind
    clock = ManualClock()
    limiter = Limiter(Limit(limit, "1ms", algorithm=algorithm), clock=clock)
    admitted: list[tuple[int, int]] = []
    retry = reset = 0
    for aim, wait, cost in trace:
        clock.us += {"wait": wait, "retry": retry, "early": max(0, retry - 1), "reset": reset}[aim]
        cost = min(cost, limit)
        held = count(admitted, clock.us, slots)
        seen = limiter.hit("k", cost)
        assert seen.allowed == (held + cost <= limit)
        if seen.allowed:
            admitted.append((clock.us, cost))
        assert seen.remaining == max(0, limit - count(admitted, clock.us, slots))
        wait = 0 if seen else first_fit(count, admitted, clock.us, slots, limit - cost) - clock.us
        assert seen.retry_us == wait
        assert seen.reset_us == first_fit(count, admitted, clock.us, slots, 0) - clock.us
        retry, reset = seen.retry_us, seen.reset_us


@settings(max_examples=60)
@given(limit=st.integers(1, 20), gaps=st.lists(st.integers(0, 60_000), max_size=200))
def test_a_log_never_exceeds_its_limit_in_any_rolling_window(limit, gaps):
    """Whatever the arrivals, every window of one period holds at most the limit."""
    clock = ManualClock()
    limiter = Limiter(Limit(limit, "100ms", algorithm="sliding-log"), clock=clock)
    stamps = []
    for gap in gaps:
        clock.us += gap
        stamps += [clock.us] * limiter.take_up_to("k", 1 + gap % 5).granted
    for first, stamp in enumerate(stamps):
        assert sum(at < stamp + 100_000 for at in stamps[first:]) <= limit


def test_a_window_that_ticks_coarsely_is_still_exact():
    """1e9/day ticks in 10 ms: the retry is the first microsecond of the tick that admits."""
    clock = ManualClock(86_400 * 10_000 + 0.003)
    limiter = Limiter("1000000000/day by sliding-window", clock=clock)
    limiter.hit("k", 1_000_000_000)
    clock.advance(86_400)
    refused = limiter.hit("k", 1_000_000)
    start = clock.us
    assert refused.retry_us > 0
    clock.us = start + refused.retry_us - 1
    assert not limiter.peek("k", 1_000_000)
    clock.us += 1
    assert limiter.peek("k", 1_000_000)
    assert clock.us % 10_000 == 0


def test_counts_above_a_lowered_limit_do_not_overflow():
    """A billion counted under the old limit, read under one of ten: refused until the window has let them go."""
    clock = ManualClock(86_400 * 10_000)
    for algorithm in ("fixed-window", "sliding-window", "sliding-window/24"):
        limiter = Limiter(f"1000000000/day by {algorithm}", clock=clock)
        limiter.hit("k", 1_000_000_000)
        plan = f"20/day by {algorithm}"
        refused = limiter.hit("k", limit=plan)
        assert not refused, algorithm
        start = clock.us
        clock.us = start + refused.retry_us - 1
        assert not limiter.peek("k", limit=plan), algorithm
        clock.us += 1
        assert limiter.peek("k", limit=plan), algorithm
        clock.us = start


def test_stepping_back_by_a_period_keeps_counting_where_it_was():
    """Up to a period back, they go on at their newest instant; beyond, they are moved back and keep their counts."""
    for algorithm in ("fixed-window", "sliding-window", "sliding-window/6", "sliding-log"):
        clock = ManualClock(6000)
        limiter = Limiter(f"10/minute by {algorithm}", clock=clock)
        limiter.hit("k", 10)
        clock.advance(-60)
        near = limiter.hit("k")
        assert (near.allowed, near.retry_after > 60) == (False, True), algorithm
        clock.advance(-600)
        far = limiter.hit("k")
        assert (far.allowed, far.retry_after <= 120) == (False, True), algorithm
        clock.us += far.retry_us
        assert limiter.hit("k"), algorithm


def test_giving_back_to_a_window_that_has_moved_on_gives_nothing():
    """A charge that no longer counts cannot be given back, and a later charge is not touched by the attempt."""
    for algorithm in ("fixed-window", "sliding-window", "sliding-window/6", "sliding-log"):
        clock = ManualClock(6000)
        limiter = Limiter(f"10/minute by {algorithm}", clock=clock)
        spent = limiter.hit("k", 5)
        clock.advance(180)
        limiter.hit("k", 3)
        limiter.refund(spent)
        assert limiter.peek("k", 0).remaining == 7, algorithm


def test_a_log_gives_back_its_own_stamps():
    """Of three charges the middle one is removed: the others leave the window when they would have anyway."""
    clock = ManualClock(6000)
    limiter = Limiter("10/minute by sliding-log", clock=clock)
    decisions = []
    for _ in range(3):
        decisions.append(limiter.hit("k", 2))
        clock.advance(10)
    limiter.refund(decisions[1])
    clock.set(6059.999999)
    assert limiter.peek("k", 0).remaining == 6
    clock.set(6060)
    assert limiter.peek("k", 0).remaining == 8
    clock.set(6070)
    assert limiter.peek("k", 0).remaining == 8
    clock.set(6080)
    assert limiter.peek("k", 0).remaining == 10
