"""The rivals with their state in a server, each set up as its documentation shows, all over redis-py but for coredis.

fastapi-redis-sdk has no calls but awaited ones outside of a web application. The buckets of pyrate-limiter are asked
directly: its limiter holds a lock from the question to the answer. It leaves the name of a key to the caller.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from bench.contestant import Names
from bench.remote import CONNECTIONS, HOUR, Remote
from bench.remote_ours import awaited

LIMITS = {
    "fixed-window": "fixed-window",
    "sliding-window-counter": "sliding-window",
    "moving-window": "sliding-log",
}
THROTTLED = {
    "token_bucket": "token-bucket",
    "gcra": "token-bucket",
    "fixed_window": "fixed-window",
    "sliding_window": "sliding-window",
}
PYRATE = {"TokenBucket": "token-bucket", "FixedWindow": "fixed-window", "SlidingWindowLog": "sliding-log"}
NOT_ATOMIC = ("throttled-py fixed_window", "limits fixed-window, coredis")
"""INCRBY, then EXPIRE when the count was the first: a client that ends between them leaves a key for ever."""
LIMITS_CALL, THROTTLED_CALL = "limiter.hit(item, key)", "throttle.limit(key)"
PUT = "(bucket := buckets[key]).put(RateItem(key, bucket.now()))"
FASTAPI_CALL = "await backend.hit(key, limit=limit, window=window)"
FASTAPI = awaited("fastapi-redis-sdk")


def remotes() -> list[Remote]:
    fastapi_yes, fastapi_no = "answer.allowed and not answer.degraded", "not answer.allowed and not answer.degraded"
    return [
        *(each for strategy in LIMITS for each in _limits(strategy)),
        _limits_coredis(),
        *(each for algorithm in THROTTLED for each in _throttled(algorithm)),
        *(each for algorithm in PYRATE for each in _pyrate(algorithm)),
        Remote(FASTAPI, _fastapi, FASTAPI_CALL, fastapi_yes, fastapi_no, "fixed-window"),
    ]


def one_by_one() -> list[Remote]:
    """Those that are called, and the one that can only be awaited."""
    return [each for each in remotes() if not each.is_async or each.name == FASTAPI]


def called() -> list[Remote]:
    return [each for each in remotes() if not each.is_async]


def in_a_crowd() -> list[Remote]:
    return [each for each in remotes() if each.is_async]


def _pair(name: str, opens: tuple[Any, Any], call: str, same: str, yes: str = "answer") -> tuple[Remote, Remote]:
    """Called and awaited."""
    sync, later = opens
    no, atomic = f"not ({yes})", name not in NOT_ATOMIC
    return (
        Remote(name, sync, call, yes, no, same, atomic),
        Remote(awaited(name), later, f"await {call}", yes, no, same, atomic),
    )


def _limits(strategy: str) -> tuple[Remote, Remote]:
    @contextmanager
    def sync(url: str, amount: int) -> Iterator[Names]:
        from limits import RateLimitItemPerHour
        from limits.storage import RedisStorage
        from limits.strategies import STRATEGIES

        storage = RedisStorage(url)
        with storage.storage:
            yield {"limiter": STRATEGIES[strategy](storage), "item": RateLimitItemPerHour(amount)}

    @asynccontextmanager
    async def later(url: str, amount: int) -> AsyncIterator[Names]:
        options = {"implementation": "redispy", "max_connections": CONNECTIONS}
        async with _limits_storage(url, options) as storage:
            yield _limits_names(strategy, storage, amount)

    return _pair(f"limits {strategy}", (sync, later), LIMITS_CALL, LIMITS[strategy])


def _limits_coredis() -> Remote:
    """The client that limits takes by itself if it is not told to take redis-py."""

    @asynccontextmanager
    async def later(url: str, amount: int) -> AsyncIterator[Names]:
        import coredis  # noqa: F401 - limits itself would find another error for it

        async with _limits_storage(url, {"implementation": "coredis"}) as storage:
            yield _limits_names("fixed-window", storage, amount)

    name = awaited("limits fixed-window, coredis")
    return Remote(name, later, f"await {LIMITS_CALL}", same="fixed-window", atomic=False)


@asynccontextmanager
async def _limits_storage(url: str, options: dict[str, Any]) -> AsyncIterator[Any]:
    from limits.aio.storage import RedisStorage

    storage = RedisStorage(f"async+{url}", **options)
    async with storage.bridge.storage:
        yield storage


def _limits_names(strategy: str, storage: Any, amount: int) -> Names:
    from limits import RateLimitItemPerHour
    from limits.aio.strategies import STRATEGIES

    return {"limiter": STRATEGIES[strategy](storage), "item": RateLimitItemPerHour(amount)}


def _throttled(algorithm: str) -> tuple[Remote, Remote]:
    @contextmanager
    def sync(url: str, amount: int) -> Iterator[Names]:
        import throttled

        store = throttled.RedisStore(server=url)
        yield {"throttle": throttled.Throttled(using=algorithm, quota=throttled.per_hour(amount), store=store)}

    @asynccontextmanager
    async def later(url: str, amount: int) -> AsyncIterator[Names]:
        from throttled.asyncio import RedisStore, Throttled, per_hour

        store = RedisStore(server=url, options={"CONNECTION_POOL_KWARGS": {"max_connections": CONNECTIONS}})
        async with store._backend.get_client():
            yield {"throttle": Throttled(using=algorithm, quota=per_hour(amount), store=store)}

    name = f"throttled-py {algorithm}"
    return _pair(name, (sync, later), THROTTLED_CALL, THROTTLED[algorithm], "not answer.limited")


class Buckets(dict[str, Any]):
    """A bucket for each key, made when it is first hit."""

    def __init__(self, make: Callable[[str], Any]) -> None:
        self.make = make

    def __missing__(self, key: str) -> Any:
        self[key] = bucket = self.make(key)
        return bucket


def _pyrate(algorithm: str) -> tuple[Remote, Remote]:
    @contextmanager
    def sync(url: str, amount: int) -> Iterator[Names]:
        import redis
        from pyrate_limiter.buckets.redis_bucket import LuaScript

        with redis.Redis.from_url(url) as client:
            yield _pyrate_names(algorithm, client, client.script_load(LuaScript.PUT_ITEM), amount)

    @asynccontextmanager
    async def later(url: str, amount: int) -> AsyncIterator[Names]:
        import redis.asyncio
        from pyrate_limiter.buckets.redis_bucket import LuaScript

        async with redis.asyncio.Redis.from_url(url, max_connections=CONNECTIONS) as client:
            yield _pyrate_names(algorithm, client, await client.script_load(LuaScript.PUT_ITEM), amount)

    return _pair(f"pyrate-limiter {algorithm}", (sync, later), PUT, PYRATE[algorithm])


def _pyrate_names(algorithm: str, client: Any, script: str, amount: int) -> Names:
    import pyrate_limiter as pyrate

    rates, policy = [pyrate.Rate(amount, pyrate.Duration.HOUR)], getattr(pyrate, algorithm)()

    def make(key: str) -> Any:
        if isinstance(policy, pyrate.StateAlgorithm):
            return pyrate.StateBucket(rates, policy, pyrate.RedisStateStore(client, key))
        return pyrate.RedisBucket(rates, client, key, script, policy)

    return {"buckets": Buckets(make), "RateItem": pyrate.RateItem}


@asynccontextmanager
async def _fastapi(url: str, amount: int) -> AsyncIterator[Names]:
    """The backend that its dependency hands to an endpoint; on a server without INCREX it takes a script."""
    import redis.asyncio
    from redis_fastapi import RateLimitBackend

    async with redis.asyncio.Redis.from_url(url, max_connections=CONNECTIONS) as client:
        yield {"backend": RateLimitBackend(client), "limit": amount, "window": HOUR}
