"""A retry for a crowd: never early, never much later, and nobody returns together."""

from __future__ import annotations

import heapq
import math
import random
from collections import Counter

import pytest

from headgate import Limiter
from headgate.testing import ManualClock
from headgate.testing.suite import EVERY_ALGORITHM

LATER = 1_000_000_020.0


def refusal(text: str, cost: int = 1):
    limiter = Limiter(text, clock=ManualClock(LATER))
    limiter.take_up_to("k", 10**9)
    return limiter.hit("k", cost)


@pytest.mark.parametrize("algorithm", EVERY_ALGORITHM)
@pytest.mark.parametrize("rate", ["100/second", "10/minute", "30/hour", "50/100ms", "10/day"])
def test_nobody_comes_early_and_nobody_waits_twice_as_long(algorithm, rate):
    """A caller waits at most twice as long as it was told, or a second longer where that is more."""
    refused = refusal(f"{rate} by {algorithm}")
    chance = random.Random(5)
    waits = [refused.retry_after_spread(chance.random) for _ in range(500)]
    assert not refused
    assert refused.retry_after <= min(waits)
    assert max(waits) <= refused.retry_after + max(refused.retry_after, 1.0)
    assert len(set(waits)) > 1


@pytest.mark.parametrize(
    ("text", "cost", "first", "middle", "last"),
    [
        ("100/second", 50, 0.5, 1.0, 1.499999),  # the burst comes back in a second
        ("100/second", 1, 0.01, 0.51, 1.009999),
        ("10/minute", 1, 6.0, 9.0, 11.999999),  # it takes a minute: twice the wait is the most
        ("10/minute", 10, 60.0, 90.0, 119.999999),
        ("1000/second burst 10", 10, 0.01, 0.015, 0.019999),  # it comes back in 10 ms: nobody has to wait longer
        ("10/minute by fixed-window", 1, 60.0, 90.0, 119.999999),
        ("10/minute block 5m", 1, 300.0, 330.0, 359.999999),
    ],
)
def test_it_is_later_by_a_part_of_the_time_a_burst_takes(text, cost, first, middle, last):
    """With chance in hand, exactly."""
    refused = refusal(text, cost)
    assert refused.retry_after == first
    spread = [refused.retry_after_spread(lambda given=given: given) for given in (0.0, 0.5, 1 - 2**-53)]
    assert spread == [first, middle, last]


def test_of_several_limits_the_one_that_binds_counts():
    """Its retry and its burst."""
    limiter = Limiter("100/second as fast; 10/minute as slow", clock=ManualClock(LATER))
    limiter.hit("k", 10)
    refused = limiter.hit("k")
    assert refused.binding.name == "slow"
    assert refused.retry_after_spread(lambda: 0.5) == 9.0


def test_a_yes_needs_no_wait_and_never_is_never():
    """An admitted request waits 0 s, and a cost above the limit for ever; chance is asked about neither."""
    limiter = Limiter("10/minute", clock=ManualClock(LATER))
    asked: list[int] = []

    def chance() -> float:
        asked.append(1)
        return 0.5

    assert limiter.hit("k").retry_after_spread(chance) == 0.0
    assert limiter.hit("k", 11).retry_after_spread(chance) == math.inf
    assert asked == []


def test_it_is_chance_unless_it_is_given_one():
    """Two callers refused at one instant are told different times; the same chance tells the same time."""
    refused = refusal("10/minute")
    assert len({refused.retry_after_spread() for _ in range(50)}) > 40
    one, other = random.Random(1), random.Random(1)
    assert [refused.retry_after_spread(one.random) for _ in range(9)] == [
        refused.retry_after_spread(other.random) for _ in range(9)
    ]


@pytest.mark.parametrize("seed", range(5))
def test_a_thousand_return_evenly(seed):
    """1,000 are refused at one instant by 100/second: told the same they return together, told this they do not."""
    chance, clock = random.Random(seed), ManualClock(LATER)
    limiter = Limiter("100/second", clock=clock)
    refused = [limiter.hit("k") for _ in range(1_100)][100:]
    together = Counter(int(each.retry_after * 100) for each in refused)
    evenly = Counter(int(each.retry_after_spread(chance.random) * 100) for each in refused)
    assert max(together.values()) == 1_000
    assert max(evenly.values()) < 40
    assert len(evenly) > 90


def test_a_crowd_that_returns_so_is_served_at_the_rate():
    """Everybody is served in the end, the limiter is never idle for long, and far fewer are refused than otherwise."""

    def refusals(spread: bool) -> int:
        chance, clock = random.Random(3), ManualClock(LATER)
        limiter = Limiter("20/second", clock=clock)
        coming = [(clock.us, number) for number in range(200)]
        total = 0
        while coming:
            clock.us, number = heapq.heappop(coming)
            answer = limiter.hit("k")
            if not answer:
                total += 1
                wait = answer.retry_after_spread(chance.random) if spread else answer.retry_after
                heapq.heappush(coming, (clock.us + round(wait * 1e6), number))
        assert clock.now() - LATER < 12
        return total

    assert refusals(spread=True) * 10 < refusals(spread=False)
