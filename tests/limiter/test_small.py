"""Limiters in pickles, and waits that block an event loop."""

from __future__ import annotations

import asyncio
import pickle
import subprocess
import sys
import warnings
from collections.abc import Callable

import pytest

from headgate import AsyncLimiter, Call, InvalidCall, Limiter, MemoryStore
from headgate.testing import ManualClock
from headgate.waiting import sleep
from tests.support.homes import LATER


def test_a_limiter_with_a_url_is_pickled(tmp_path):
    """Another process counts with it in the same store, by the same options."""
    url = f"sqlite://{tmp_path}/limits.db"
    with Limiter("3/hour", "9/day as long", store=url, namespace="n", on_error="raise", max_waiting=7) as limiter:
        assert limiter.hit("k")
        code = "import pickle, sys; it = pickle.load(sys.stdin.buffer); print(it.hit('k').remaining, it.max_waiting)"
        asked = [sys.executable, "-c", code]
        told = subprocess.run(asked, input=pickle.dumps(limiter), capture_output=True, check=True)
        assert told.stdout.split() == [b"1", b"7"]
        assert limiter.hit("k").remaining == 0
    awaited = pickle.loads(pickle.dumps(AsyncLimiter("3/hour", store=url)))
    assert (type(awaited), awaited.limits, awaited.namespace) == (AsyncLimiter, Limiter("3/hour").limits, "default")


@pytest.mark.parametrize("given", [{}, {"store": "memory://"}, {"store": MemoryStore()}, {"clock": ManualClock()}])
def test_a_limiter_whose_counts_stay_here_is_not_pickled(given):
    """Its copy in another process would count apart, unnoticed."""
    with pytest.raises(InvalidCall, match="only a limiter whose store is a URL"):
        pickle.dumps(Limiter("3/hour", **given))


BUCKET = "1/second burst 1"
BLOCKING: dict[str, tuple[str, Callable[[Limiter], object]]] = {
    "a promise": (BUCKET, lambda limiter: limiter.acquire("k")),
    "a window": ("1/second by fixed-window", lambda limiter: limiter.acquire("k")),
    "a log": ("1/second by sliding-log", lambda limiter: limiter.acquire("k")),
    "an order": (BUCKET, lambda limiter: limiter.acquire("k", priority=1)),
    "several subjects": (BUCKET, lambda limiter: limiter.acquire_all(Call(*limiter.limits, "k"))),
    "a stream": (BUCKET, lambda limiter: list(limiter.stream("k", [b"b"]))),
    "a reservation": (BUCKET, lambda limiter: limiter.reserve("k").wait()),
}


@pytest.mark.parametrize(("limits", "blocks"), BLOCKING.values(), ids=BLOCKING)
def test_a_wait_that_blocks_a_running_event_loop_is_warned_of_once(limits, blocks, monkeypatch):
    """The first wait warns of the line that called it; a wait in a thread of its own, and a call that need not wait,
    do not."""
    monkeypatch.setattr(sleep, "_warned", False)
    limiter = Limiter(limits, clock=ManualClock(LATER))

    async def story() -> list[warnings.WarningMessage]:
        blocks(limiter)
        await asyncio.to_thread(blocks, limiter)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            for _ in range(3):
                blocks(limiter)
        return told

    [warning] = asyncio.run(story())
    assert "use AsyncLimiter" in str(warning.message)
    assert warning.filename == __file__
