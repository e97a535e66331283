"""Long storms: the same checks as in the suite, for as long as SOAK_SECONDS says (default 120, shared by all)."""

from __future__ import annotations

import random
import sys
import time

import pytest

from headgate import Limiter, MemoryStore
from headgate.testing import ManualClock
from headgate.testing.suite import EVERY_ALGORITHM, PLANS, SEVERAL, SINGLE
from headgate.testing.traces import compare
from tests.support import side_by_side, soaking

pytestmark = pytest.mark.soak

SECONDS = soaking.SECONDS / 3


def until_time_is_up():
    end = time.monotonic() + SECONDS
    seed = soaking.fresh_seed()
    while time.monotonic() < end:
        yield seed
        seed += 1


def test_twins_agree_on_any_trace():
    """Fresh seeds every time; a failure names its seed."""
    for seed in until_time_is_up():
        for text in (*SINGLE, *SEVERAL):
            compare(text, lambda clock: MemoryStore(clock=clock), seed, 400)
        for own, *others in PLANS:
            compare(own, lambda clock: MemoryStore(clock=clock), seed, 400, others)


def test_floods_never_free_a_heavy_user():
    """Random bounds, random limits, ten times as many keys as fit."""
    for seed in until_time_is_up():
        chance = random.Random(seed)
        max_keys = chance.randrange(100, 20_000)
        text = f"{chance.randrange(10, 50)}/hour by {chance.choice(EVERY_ALGORITHM)}"
        store = MemoryStore(max_keys=max_keys, clock=ManualClock(1e9))
        limiter = Limiter(text, store=store)
        heavy = [f"heavy:{n}" for n in range(max_keys // 100)]
        for key in heavy:
            limiter.take_up_to(key, 50)
        for n in range(10 * max_keys):
            limiter.hit(f"flood:{seed}:{n}")
        assert not any(limiter.hit(key) for key in heavy), (seed, text, max_keys)
        assert store.keys() <= max_keys / 0.75 + 8, (seed, text, max_keys)


def test_threads_never_admit_one_too_many():
    """Eight threads, a switch interval of a microsecond, every algorithm in turn."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for seed in until_time_is_up():
            algorithm = EVERY_ALGORITHM[seed % len(EVERY_ALGORITHM)]
            limiter = Limiter(
                f"5000/day by {algorithm} as one; 5000/week by {algorithm} as two", clock=ManualClock(1e9)
            )
            admitted: list[int] = []

            def hammer(limiter: Limiter = limiter, admitted: list[int] = admitted) -> None:
                admitted.append(sum(limiter.hit("k").granted for _ in range(1_000)))

            with side_by_side([hammer] * 8):
                pass
            assert sum(admitted) == 5_000, algorithm
    finally:
        sys.setswitchinterval(before)
