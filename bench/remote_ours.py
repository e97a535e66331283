"""Headgate with its state in a server, and the empty script that is asked for in the same way."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from bench.contestant import Names
from bench.ours import CALL
from bench.remote import CONNECTIONS, Remote

ALGORITHMS = ("token-bucket", "fixed-window", "sliding-window", "sliding-log")
YES, NO = "answer.allowed and not answer.degraded", "not answer.allowed and not answer.degraded"
BARE, BARE_CALL = "bare EVALSHA", "client.evalsha(sha, 1, key)"
PATIENT = {"deadline": 5.0, "connect_timeout": 5.0}
"""Seconds, as rivals have by redis-py: a busy machine is to make figures worse, not to have the server left out."""
PERIODS = ("hour", "day", "week")
"""Of so many limits a decision of several is made."""


def ours(algorithm: str) -> str:
    return f"headgate {algorithm}"


def several(count: int) -> str:
    return f"headgate {count} limit{'s' if count > 1 else ''}"


def awaited(name: str) -> str:
    return f"async {name}"


def remotes() -> list[Remote]:
    """The empty script has a key and no answer: what is left is the way there and back."""
    return [
        Remote(BARE, _bare, BARE_CALL, "answer is None", limits=False),
        Remote(awaited(BARE), _bare_awaited, f"await {BARE_CALL}", "answer is None", limits=False),
        *(_ours(ours(algorithm), _by(algorithm), algorithm) for algorithm in ALGORITHMS),
        *(_awaited(algorithm) for algorithm in ALGORITHMS),
        *(_ours(several(count), _first(count)) for count in range(1, 1 + len(PERIODS))),
    ]


def _by(algorithm: str) -> Callable[[int], str]:
    return lambda amount: f"{amount}/hour by {algorithm}"


def _first(count: int) -> Callable[[int], str]:
    return lambda amount: "; ".join(f"{amount * 10**at}/{PERIODS[at]}" for at in range(count))


def _ours(name: str, words: Callable[[int], str], same: str = "") -> Remote:
    @contextmanager
    def open_limiter(url: str, amount: int) -> Iterator[Names]:
        from headgate import Limiter
        from headgate.stores.redis import RedisStore

        limiter: Any = Limiter(words(amount), store=RedisStore(url, **PATIENT))
        try:
            yield {"limiter": limiter}
        finally:
            limiter.store.close()

    return Remote(name, open_limiter, CALL, YES, NO, same)


def _awaited(algorithm: str) -> Remote:
    @asynccontextmanager
    async def open_limiter(url: str, amount: int) -> AsyncIterator[Names]:
        from headgate import AsyncLimiter
        from headgate.stores.redis import RedisStore

        limiter: Any = AsyncLimiter(_by(algorithm)(amount), store=RedisStore(url, **PATIENT))
        try:
            yield {"limiter": limiter}
        finally:
            await limiter.store.aclose()

    return Remote(awaited(ours(algorithm)), open_limiter, f"await {CALL}", YES, NO, algorithm)


@contextmanager
def _bare(url: str, amount: int) -> Iterator[Names]:
    """A client with the settings of headgate's: a timeout, the older protocol, nothing asked twice."""
    import redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    with redis.Redis.from_url(url, protocol=2, socket_timeout=5.0, retry=Retry(NoBackoff(), 0)) as client:
        yield {"client": client, "sha": client.script_load("")}


@asynccontextmanager
async def _bare_awaited(url: str, amount: int) -> AsyncIterator[Names]:
    import redis.asyncio

    async with redis.asyncio.Redis.from_url(url, max_connections=CONNECTIONS) as client:
        yield {"client": client, "sha": await client.script_load("")}
