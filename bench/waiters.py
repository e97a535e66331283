"""Who waits: each library is asked by many tasks at once, on one key, in the way it documents for waiting.

The limit is 100 a second and 100 at once for every one of them, so the ideal is the same: the first 100 leave at once
and the last after (waiters - 100) / 100 seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bench.contestant import KEY, Names

RATE = 100
BURST = 100
BUCKET, LOG = "headgate token-bucket", "headgate sliding-log"
OURS = (BUCKET, LOG)


@dataclass(frozen=True)
class Waiter:
    """`make()` gives the names that `call` uses; it is called in the event loop."""

    name: str
    make: Callable[[], Names]
    call: str
    yes: str = "answer"
    """Whether it was admitted, as an expression."""
    ours: bool = False
    """Nobody may leave early or overtake; of rivals that is only shown."""


def waiters() -> list[Waiter]:
    return [
        Waiter(BUCKET, _headgate("token-bucket"), "await limiter.acquire(key)", "answer.allowed", ours=True),
        Waiter(LOG, _headgate("sliding-log"), "await limiter.acquire(key)", "answer.allowed", ours=True),
        Waiter("aiolimiter", _aiolimiter, "await limiter.acquire()", "answer is None"),
        Waiter("pyrate-limiter TokenBucket", _pyrate, "await limiter.try_acquire_async(key)"),
        # It does not wait without a timeout.
        Waiter("throttled-py token_bucket", _throttled, "await throttle.limit(key, timeout=600)", "not answer.limited"),
        Waiter("asyncio-throttle", _asyncio_throttle, "await throttler.acquire()", "answer is None"),
    ]


def _headgate(algorithm: str) -> Callable[[], Names]:
    def make() -> Names:
        from headgate import AsyncLimiter

        return {"limiter": AsyncLimiter(f"{RATE}/second by {algorithm}"), "key": KEY}

    return make


def _aiolimiter() -> Names:
    from aiolimiter import AsyncLimiter

    return {"limiter": AsyncLimiter(RATE, 1)}


def _pyrate() -> Names:
    import pyrate_limiter as pyrate

    bucket = pyrate.StateBucket([pyrate.Rate(RATE, pyrate.Duration.SECOND)], algorithm=pyrate.TokenBucket())
    return {"limiter": pyrate.Limiter(bucket), "key": KEY}


def _throttled() -> Names:
    import throttled.asyncio as throttled

    quota = throttled.per_sec(RATE, burst=BURST)
    return {
        "throttle": throttled.Throttled(using="token_bucket", quota=quota, store=throttled.MemoryStore()),
        "key": KEY,
    }


def _asyncio_throttle() -> Names:
    from asyncio_throttle import Throttler

    return {"throttler": Throttler(rate_limit=RATE, period=1.0)}
