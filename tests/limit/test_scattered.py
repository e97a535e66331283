"""Scattered windows: where the seams of keys are, what that does to a crowd, and a full table."""

from __future__ import annotations

from collections import Counter

import pytest

from headgate import Limiter, MemoryStore
from headgate.testing import ManualClock

MINUTE = 60_000_000
KEYS = [f"account:{number}" for number in range(1_000)]


def seams(namespace: str) -> dict[str, int]:
    """Where in a minute the window of each key begins."""
    clock = ManualClock(6_000_000.0)
    limiter = Limiter("3/minute by fixed-window scattered", clock=clock, namespace=namespace)
    return {key: limiter.hit(key).reset_us % MINUTE for key in KEYS}


def test_seams_are_spread_over_the_period():
    """A thousand keys use nearly all of 256 seams, a quarter of a second apart, and none is crowded."""
    begun = Counter(seams("default").values())
    assert len(begun) == 254
    assert max(begun.values()) == 9
    assert all(begin * 256 % MINUTE == 0 for begin in begun)


def test_a_namespace_has_seams_of_its_own():
    """The hash is keyed: in another namespace only as many keys keep their seam as chance lets."""
    here, there = seams("default"), seams("other")
    assert sum(here[key] == there[key] for key in KEYS) < 20


@pytest.mark.parametrize(("words", "passed"), [("by fixed-window", 200_000), ("by fixed-window scattered", 103_200)])
def test_a_crowd_at_the_seam_passes_little_more_than_the_limit(words, passed):
    """1,000 accounts of 100 a minute that ask all they can in the last and the first second of a minute."""
    clock = ManualClock(6_000_000.0 + 59)
    limiter = Limiter(f"100/minute {words}", clock=clock)
    total = 0
    for _ in range(20):
        total += sum(limiter.take_up_to(key, 100).granted for key in KEYS)
        clock.us += 100_000
    assert total == passed


def test_a_full_table_drops_no_key_whose_window_runs_on():
    """Heavy users of any seam stay refused while a flood of new keys passes through a table of their number."""
    clock = ManualClock(6_000_000.0)
    store = MemoryStore(max_keys=12, clock=clock)
    limiter = Limiter("5/minute by fixed-window scattered", store=store)
    heavy = {f"heavy:{number}": limiter.hit(f"heavy:{number}", 5).reset_us for number in range(6)}
    start = clock.us
    for at, (key, left) in enumerate(sorted(heavy.items(), key=lambda pair: pair[1])):
        clock.us = start + left - 1
        for number in range(40):
            limiter.hit(f"flood:{at}:{number}")
        assert limiter.peek(key).retry_us == 1, key
