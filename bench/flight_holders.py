"""The holders: headgate's permits, the semaphores of the standard library, and what is done with Redis.

redis-py has a lock and no semaphore. The two recipes that make one are written here as they are told: the fair
semaphore of *Redis in Action* (6.3.2: a set of owners by a counter, one of times, tidied up together), and a sorted set
of leases that a script looks after. Nobody renews what any of them holds.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from time import time
from typing import Any
from uuid import uuid4

from bench.contestant import Names
from bench.flight import ROOM, Holder
from bench.remote import CONNECTIONS
from bench.remote_ours import PATIENT, awaited
from bench.sharer import own_directory
from bench.sharing import check_engine

WORDS = f"{ROOM} in flight"
TTL = 30
WITH, RELEASE = "headgate permit, with", "headgate permit, release"
SHARED_WITH, SHARED_RELEASE = f"{WITH}, shared", f"{RELEASE}, shared"
REDIS = "headgate permit"
THREADING, ASYNCIO, PROCESSES = "threading.BoundedSemaphore", "asyncio.Semaphore", "multiprocessing.BoundedSemaphore"
LOCK, FAIR, SORTED, SELF = "redis-py Lock", "fair semaphore", "sorted set in Lua", "self-limiters Semaphore"
RIVALS = (LOCK, SORTED, FAIR)
"""At a server; each is called, and awaited."""
SELF_AWAITED = awaited(SELF)
"""Can only be awaited."""
PERMIT, ENTER = "limiter.permit(key)", "with limiter.permit(key): pass"
GIVE_PERMIT = "answer.release()"
TAKE_SORTED = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[1]) then return 0 end
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
"""


def holders() -> list[Holder]:
    ours = [
        _permit(WITH, "process", _in_memory, ENTER),
        _permit(RELEASE, "process", _in_memory, f"{PERMIT}.release()"),
        _permit(SHARED_WITH, "host", _in_shared, ENTER),
        _permit(SHARED_RELEASE, "host", _in_shared, f"{PERMIT}.release()"),
        _permit(REDIS, "server", _at_server, ENTER),
        _awaited_permit(WITH, "process", _in_memory_awaited),
        _awaited_permit(REDIS, "server", _at_server_awaited),
    ]
    return [*ours, *_standard(), *_locks(), *_sorted_sets(), *_fair_ones(), _self_limiters()]


def _permit(name: str, home: Any, opened: Callable[[str], Any], turn: str) -> Holder:
    return Holder(name, home, opened, turn, PERMIT, GIVE_PERMIT, scripts=2 if home == "server" else None)


def _awaited_permit(name: str, home: Any, opened: Callable[[str], Any]) -> Holder:
    scripts = 2 if home == "server" else None
    return Holder(
        awaited(name), home, opened, f"async {ENTER}", f"await {PERMIT}", f"await {GIVE_PERMIT}", scripts=scripts
    )


@contextmanager
def _in_memory(url: str) -> Iterator[Names]:
    from headgate import Limiter

    yield {"limiter": Limiter(WORDS)}


@contextmanager
def _in_memory_awaited(url: str) -> Iterator[Names]:
    from headgate import AsyncLimiter

    yield {"limiter": AsyncLimiter(WORDS)}


@contextmanager
def _in_shared(url: str) -> Iterator[Names]:
    from headgate import Limiter

    check_engine()
    with own_directory() as directory:
        yield {"limiter": Limiter(WORDS, store=f"shared://{directory}?max_keys=1000")}


@contextmanager
def _at_server(url: str) -> Iterator[Names]:
    from headgate import Limiter
    from headgate.stores.redis import RedisStore

    store = RedisStore(url, **PATIENT)
    try:
        yield {"limiter": Limiter(WORDS, store=store, on_error="raise")}
    finally:
        store.close()


@asynccontextmanager
async def _at_server_awaited(url: str) -> AsyncIterator[Names]:
    from headgate import AsyncLimiter
    from headgate.stores.redis import RedisStore

    store = RedisStore(url, **PATIENT)
    try:
        yield {"limiter": AsyncLimiter(WORDS, store=store, on_error="raise")}
    finally:
        await store.aclose()


def _standard() -> list[Holder]:
    @contextmanager
    def threads(url: str) -> Iterator[Names]:
        from threading import BoundedSemaphore

        yield {"semaphore": BoundedSemaphore(ROOM)}

    @contextmanager
    def processes(url: str) -> Iterator[Names]:
        from multiprocessing import BoundedSemaphore

        yield {"semaphore": BoundedSemaphore(ROOM)}

    @contextmanager
    def tasks(url: str) -> Iterator[Names]:
        from asyncio import Semaphore

        yield {"semaphore": Semaphore(ROOM)}

    turn, take, give = "with semaphore: pass", "semaphore.acquire(blocking=False)", "semaphore.release()"
    unless_full = "await semaphore.acquire() if not semaphore.locked() else False"
    return [
        Holder(THREADING, "process", threads, turn, take, give),
        Holder(PROCESSES, "host", processes, turn, "semaphore.acquire(False)", give),
        Holder(awaited(ASYNCIO), "process", tasks, f"async {turn}", unless_full, give),
    ]


@contextmanager
def _client(url: str) -> Iterator[Any]:
    import redis

    with redis.Redis.from_url(url) as client:
        yield client


@asynccontextmanager
async def _async_client(url: str) -> AsyncIterator[Any]:
    import redis.asyncio

    async with redis.asyncio.Redis.from_url(url, max_connections=CONNECTIONS) as client:
        yield client


def _locks() -> list[Holder]:
    """As many as it has room for: one."""

    def taken(client: Any, key: str) -> Any:
        lock = client.lock(key, timeout=TTL, blocking=False)
        return lock if lock.acquire() else None

    async def taken_later(client: Any, key: str) -> Any:
        lock = client.lock(key, timeout=TTL, blocking=False)
        return lock if await lock.acquire() else None

    @contextmanager
    def sync(url: str) -> Iterator[Names]:
        with _client(url) as client:
            yield {"client": client, "taken": taken}

    @asynccontextmanager
    async def later(url: str) -> AsyncIterator[Names]:
        async with _async_client(url) as client:
            yield {"client": client, "taken": taken_later}

    turn, take = f"with client.lock(key, timeout={TTL}): pass", "taken(client, key)"
    return [
        Holder(LOCK, "server", sync, turn, take, GIVE_PERMIT, room=1),
        Holder(awaited(LOCK), "server", later, f"async {turn}", f"await {take}", f"await {GIVE_PERMIT}", room=1),
    ]


def _sorted_sets() -> list[Holder]:
    """One script to take, one command to give back: the least a semaphore in a server can do."""

    def names(client: Any) -> Names:
        script = client.register_script(TAKE_SORTED)

        def take(key: str) -> Any:
            token = uuid4().hex
            return token if script([key], [ROOM, TTL * 1000, token]) else None

        async def take_later(key: str) -> Any:
            token = uuid4().hex
            return token if await script([key], [ROOM, TTL * 1000, token]) else None

        return {"take": take, "take_later": take_later, "give": client.zrem}

    @contextmanager
    def sync(url: str) -> Iterator[Names]:
        with _client(url) as client:
            yield names(client)

    @asynccontextmanager
    async def later(url: str) -> AsyncIterator[Names]:
        async with _async_client(url) as client:
            yield names(client)

    return _by_token(SORTED, sync, later)


def _look(pipeline: Any, key: str, now: float) -> Any:
    pipeline.zremrangebyscore(key, "-inf", now - TTL)
    pipeline.zinterstore(f"{key}:owner", {f"{key}:owner": 1, key: 0})
    return pipeline.incr(f"{key}:counter")


def _join(pipeline: Any, key: str, token: str, now: float, counter: int) -> Any:
    pipeline.zadd(key, {token: now})
    pipeline.zadd(f"{key}:owner", {token: counter})
    return pipeline.zrank(f"{key}:owner", token)


def _leave(pipeline: Any, key: str, token: str) -> Any:
    pipeline.zrem(key, token)
    return pipeline.zrem(f"{key}:owner", token)


def _fair_ones() -> list[Holder]:
    """Two trips to take, one to give back. Between the trips of a take others may take too, as the book says."""

    @contextmanager
    def sync(url: str) -> Iterator[Names]:
        with _client(url) as client:

            def take(key: str) -> Any:
                token, now = uuid4().hex, time()
                counter = _look(client.pipeline(), key, now).execute()[-1]
                if _join(client.pipeline(), key, token, now, counter).execute()[-1] < ROOM:
                    return token
                give(key, token)
                return None

            def give(key: str, token: str) -> None:
                _leave(client.pipeline(), key, token).execute()

            yield {"take": take, "give": give}

    @asynccontextmanager
    async def later(url: str) -> AsyncIterator[Names]:
        async with _async_client(url) as client:

            async def take(key: str) -> Any:
                token, now = uuid4().hex, time()
                counter = (await _look(client.pipeline(), key, now).execute())[-1]
                if (await _join(client.pipeline(), key, token, now, counter).execute())[-1] < ROOM:
                    return token
                await give(key, token)
                return None

            async def give(key: str, token: str) -> None:
                await _leave(client.pipeline(), key, token).execute()

            yield {"take_later": take, "give": give}

    return _by_token(FAIR, sync, later)


def _by_token(name: str, sync: Callable[[str], Any], later: Callable[[str], Any]) -> list[Holder]:
    take, give, given = "take(key)", "give(key, answer)", "give(key, take(key))"
    given_later = "await give(key, await take_later(key))"
    return [
        Holder(name, "server", sync, given, take, give),
        Holder(awaited(name), "server", later, given_later, "await take_later(key)", f"await {give}"),
    ]


def _self_limiters() -> Holder:
    """A semaphore for each key, kept: it may be used again, and then keeps its connections."""

    @contextmanager
    def later(url: str) -> Iterator[Names]:
        from self_limiters import MaxSleepExceededError, Semaphore

        class Semaphores(dict[str, Any]):
            def __missing__(self, key: str) -> Any:
                # Parts of a second are dropped, and 0 waits for ever.
                self[key] = made = Semaphore(name=key, capacity=ROOM, max_sleep=1, redis_url=url)
                return made

        async def taken(semaphore: Any) -> Any:
            try:
                await semaphore.__aenter__()
            except MaxSleepExceededError:
                return None
            return semaphore

        yield {"semaphores": Semaphores(), "taken": taken}

    turn, give = "async with semaphores[key]: pass", "await answer.__aexit__(None, None, None)"
    return Holder(SELF_AWAITED, "server", later, turn, "await taken(semaphores[key])", give)
