"""One equation, three vocabularies: the bucket against the textbook form of each, in exact fractions."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

from hypothesis import example, given, settings
from hypothesis import strategies as st

from headgate import Limit, Limiter
from headgate.testing import ManualClock


class Seen(NamedTuple):
    allowed: bool
    remaining: int
    retry_us: int


class TokenBucket:
    """Tokens drip in at the rate, up to the burst; a request takes its cost out."""

    def __init__(self, rate: Fraction, burst: int) -> None:
        self.rate, self.burst, self.tokens, self.last = rate, burst, Fraction(burst), 0

    def ask(self, now: int, cost: int) -> Seen:
        self.tokens = min(Fraction(self.burst), self.tokens + (now - self.last) * self.rate)
        self.last = now
        allowed = cost <= self.tokens
        retry = 0 if allowed else -(-(cost - self.tokens) // self.rate)
        self.tokens -= cost if allowed else 0
        return Seen(allowed, int(self.tokens), retry)


class VirtualScheduling:
    """GCRA as ITU-T I.371 writes it: a cell conforms unless it comes earlier than TAT - tau (here for cost cells)."""

    def __init__(self, rate: Fraction, burst: int) -> None:
        self.interval, self.tat = 1 / rate, Fraction(0)
        self.tau = (burst - 1) * self.interval

    def ask(self, now: int, cost: int) -> Seen:
        tat = max(self.tat, Fraction(now)) + (cost - 1) * self.interval  # when the last of the cells would be due
        allowed = tat - self.tau <= now
        if allowed:
            self.tat = tat + self.interval
        free = (now + self.tau + self.interval - max(self.tat, Fraction(now))) / self.interval
        return Seen(allowed, max(0, free // 1), 0 if allowed else -((now - (tat - self.tau)) // 1))


class LeakyMeter:
    """A bucket that leaks at the rate and overflows above the burst; a request pours its cost in."""

    def __init__(self, rate: Fraction, burst: int) -> None:
        self.rate, self.burst, self.level, self.last = rate, burst, Fraction(0), 0

    def ask(self, now: int, cost: int) -> Seen:
        self.level = max(Fraction(0), self.level - (now - self.last) * self.rate)
        self.last = now
        allowed = self.level + cost <= self.burst
        retry = 0 if allowed else -(-(self.level + cost - self.burst) // self.rate)
        self.level += cost if allowed else 0
        return Seen(allowed, (self.burst - self.level) // 1, retry)


TEXTBOOKS: dict[str, Callable[[Fraction, int], TokenBucket | VirtualScheduling | LeakyMeter]] = {
    "token-bucket": TokenBucket,
    "gcra": VirtualScheduling,
    "leaky-bucket": LeakyMeter,
}

rates = st.tuples(st.integers(1, 8192), st.integers(1, 5000)).filter(lambda rate: Limit(rate[0], f"{rate[1]}ms").exact)
steps = st.lists(
    st.tuples(st.sampled_from(["wait", "retry", "early", "late"]), st.integers(0, 10**7), st.integers(1, 12))
)


@settings(max_examples=150)
@given(rate=rates, burst=st.integers(1, 12), steps=steps)
@example(rate=(3, 70), burst=4, steps=[("wait", 0, 4), ("retry", 0, 1), ("early", 0, 3), ("late", 0, 3)])
def test_each_vocabulary_equals_its_textbook(rate, burst, steps):
    """Admission, whole units left and the wait are those of the textbook, at every instant a trace is aimed at."""
    amount, period_ms = rate
    for algorithm, textbook in TEXTBOOKS.items():
        clock = ManualClock(1.0)
        limiter = Limiter(Limit(amount, f"{period_ms}ms", burst=burst, algorithm=algorithm), clock=clock)
        book = textbook(Fraction(amount, period_ms * 1000), burst)
        retry = 0
        for aim, wait, cost in steps:
            clock.us += {"wait": wait, "retry": retry, "early": max(0, retry - 1), "late": retry + 1}[aim]
            cost = min(cost, burst)
            seen, told = limiter.hit("k", cost), book.ask(clock.us, cost)
            assert (seen.allowed, seen.remaining, seen.retry_us) == told, algorithm
            retry = told.retry_us


@settings(max_examples=60)
@given(
    amount=st.integers(1, 10**6),
    period=st.integers(1, 10**5),
    burst=st.integers(1, 50),
    gaps=st.lists(st.integers(0, 10**6)),
)
def test_no_interval_admits_more_than_burst_plus_rate_times_time(amount, period, burst, gaps):
    """From any admission to any later one, at most burst + rate * t pass, whatever the arrivals."""
    try:
        limit = Limit(amount, f"{period}ms", burst=burst)
    except ValueError:
        return
    clock = ManualClock()
    limiter = Limiter(limit, clock=clock)
    admitted = []
    for gap in gaps:
        clock.us += gap
        if granted := limiter.take_up_to("k", 1 + gap % 7).granted:
            admitted.append((clock.us, granted))
    rate = Fraction(amount, period * 1000)
    for first in range(len(admitted)):
        total = 0
        for at, units in admitted[first:]:
            total += units
            assert total <= burst + rate * (at - admitted[first][0])


def test_the_rate_is_delivered_over_a_long_run():
    """Asked whenever it is due, 119/minute delivers 119 a minute: not one less, whatever the fraction."""
    clock = ManualClock()
    limiter = Limiter("119/minute burst 1", clock=clock)
    passed = 0
    while clock.us < 600_000_000:
        decision = limiter.hit("k")
        passed += decision.allowed
        clock.us += decision.retry_us
    assert passed == 1190


def test_rounded_rates_are_low_by_at_most_one_part_in_8192():
    """999,999,999/day is kept as an interval rounded up to 1/8192 us; it never delivers more than was asked for."""
    limit = Limit(999_999_999, "day", burst=1)
    assert not limit.exact
    params = limit.params
    interval, asked = Fraction(params[2], params[1]), Fraction(86_400_000_000, 999_999_999)
    assert asked <= interval < asked + Fraction(1, 8192)


def test_giving_back_counts_what_has_drained_meanwhile():
    """A unit given back after it has drained by itself gives nothing; half drained, half."""
    clock = ManualClock(1000)
    limiter = Limiter("1/second burst 10", clock=clock)
    for waited, reset in ((0, 0.0), (250_000, 0.0), (1_000_000, 0.0), (2_000_000, 0.0)):
        clock.us += 20_000_000
        spent = limiter.hit("k", 1)
        clock.us += waited
        limiter.refund(spent)
        assert limiter.peek("k", 0).reset_after == reset
    clock.us += 20_000_000
    first, second = limiter.hit("k", 4), limiter.hit("k", 2)
    clock.us += 1_000_000
    limiter.refund(first)  # 4 s charged at its base, 1 s of which has drained: 3 s come back of the 5 s still due
    assert limiter.peek("k", 0).reset_after == 2.0
    limiter.refund(second)  # its base lay 4 s after its charge, so nothing of it has drained
    assert limiter.peek("k", 0).reset_after == 0.0


def test_giving_back_counts_the_last_fraction_of_a_microsecond():
    """A charge that ends a seventh of a microsecond from now is given back by that seventh, and later by nothing."""
    for late, reset in ((-1, 0), (0, 0), (1, 0)):
        clock = ManualClock(1000)
        limiter = Limiter("7/second burst 10", clock=clock)
        limiter.hit("k", 6)
        spent = limiter.hit("k", 2)  # from 857,142 6/7 us on, for 285,714 2/7 us
        clock.us += 857_142 + 285_715 + late
        assert limiter.peek("k", 0).reset_us == 1 - late
        limiter.refund(spent)
        assert limiter.peek("k", 0).reset_us == reset


def test_a_clock_far_in_the_past_does_not_freeze_a_key():
    """More than an hour beyond what a burst explains, the arrival time is moved back: full now, not for years."""
    clock = ManualClock(10_000_000)
    limiter = Limiter("60/minute", clock=clock)
    limiter.hit("k", 60)
    clock.set(10_000_000 - 3600)
    assert limiter.hit("k").retry_after == 3601.0  # explained by an hour's step: waits it out
    clock.set(10_000_000 - 3601)
    assert limiter.hit("k").retry_after == 1.0
    clock.advance(1.0)
    assert limiter.hit("k")
    assert not limiter.hit("k")
