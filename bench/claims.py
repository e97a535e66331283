"""Published claims, recomputed: wrong answers of a window on real and made traffic, and bytes of clients by store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from bench.contestant import MissingError, WorkloadError
from bench.measure import STATM, Figures, resident
from bench.remote import user_keys
from bench.server import serving
from bench.sharer import own_directory

ARTICLE = "the articles' way"
STORES = ("memory", "shared", "redis", ARTICLE)
LOG, SLOTS, COUNTERS = "by sliding-log", "by sliding-window/60", "by sliding-window"
FIRST = 1_000_000_000_000_000 // 86_400_000_000 * 86_400_000_000
"""The first hits come at the start of a day, in microseconds, so that each slot of a window is used."""
SECOND = 1_000_000
DAY_MS = 86_400_000
MOST_BYTES = 2**30


class Crowd(NamedTuple):
    """So many clients of an article, the limit of each, and how many are measured in each store."""

    clients: int
    limit: str
    sample: int
    at_server: int


CROWDS = (
    Crowd(10_000, f"500/day {LOG}", 10_000, 10_000),
    Crowd(10_000, f"500/day {SLOTS}", 10_000, 1_000),
    Crowd(10_000, f"500/day {COUNTERS}", 10_000, 10_000),
    Crowd(2_000_000, f"100/minute {LOG}", 100_000, 20_000),
    Crowd(2_000_000, f"100/minute {COUNTERS}", 100_000, 20_000),
    Crowd(100_000, f"1000/minute {LOG}", 10_000, 5_000),
)


def sample(crowd: Crowd, store: str) -> int:
    if store == ARTICLE and LOG in crowd.limit:
        return crowd.at_server // 10
    return crowd.at_server if store in ("redis", ARTICLE) else crowd.sample


def row_of(name: str) -> Figures:
    """The two lines of the page about one kind of traffic."""
    from tests.support import claims
    from tests.support.traces import found_trace

    if name in claims.MADE:
        limit, found = claims.MADE_LIMIT, claims.experiment(claims.made(name), claims.MADE_LIMIT)
    elif found_trace(claims.TRACES[name].file) is None:
        raise MissingError(f"{claims.TRACES[name].file} is not there: the traces are not part of the package")
    else:
        limit = claims.TRACES[name].limit
        with claims.log_of(name) as log:
            found = claims.experiment(log, limit)
    return {"wrong": claims.wrong_row(name, limit, found), "sources": claims.source_row(name, found)}


def bytes_of(name: str, count: int) -> Figures:
    """Bytes a client in a store, when each has used its whole limit."""
    from headgate.clock import HandClock
    from headgate.lab import replay

    store, words = name.split(" | ")
    if store == ARTICLE:
        return {"bytes": as_articles(words, count)}
    clock, keys = HandClock(FIRST), user_keys(count)
    with OPENED[store](words, count, clock) as (limiter, grown):
        fill(limiter, clock, keys)
        return {"bytes": grown() / count, "state": replay([], words).limits[0].bytes}


def fill(limiter: Any, clock: Any, keys: Sequence[str]) -> None:
    """Each client uses its limit up: a log at once, a window slot by slot, and two counters in two windows."""
    (limit,) = limiter.limits
    turns = turns_of(limit)
    for turn in range(turns):
        clock.us = FIRST + turn * (limit.period_us if turns == 2 else limit.period_us // turns)
        admitted = sum(limiter.hit(key, limit.amount // turns).allowed for key in keys)
        if admitted != len(keys):
            raise WorkloadError(f"{limit}: of {len(keys)} clients {admitted} were admitted")


def turns_of(limit: Any) -> int:
    """In how many parts a client uses its limit, so that every counter of its state is in use."""
    return max(2, limit.params[2]) if limit.step.KIND == "window" else 1


Opened = Iterator[tuple[Any, Callable[[], int]]]


def roomy(count: int) -> int:
    """A table that is filled to nine tenths loses no key."""
    return -(-count * 10 // 9)


def kept(store: Any, grown: int) -> int:
    if store.evictions():
        raise WorkloadError(f"{store.evictions()} clients were forgotten")
    return grown


def files(folder: str) -> list[Path]:
    return [path for path in Path(folder).rglob("*") if path.is_file()]


@contextmanager
def in_memory(words: str, count: int, clock: Any) -> Opened:
    from headgate import Limiter, MemoryStore

    if not STATM.exists():
        raise MissingError("this system does not tell the resident set of a process")
    store = MemoryStore(max_keys=roomy(count), max_bytes=MOST_BYTES, clock=clock)
    limiter, before = Limiter(words, store=store), resident()
    yield limiter, lambda: kept(store, resident() - before)


@contextmanager
def in_shared(words: str, count: int, clock: Any) -> Opened:
    from headgate import Limiter
    from headgate.engine import NATIVE
    from headgate.stores.shared import SharedStore

    if not NATIVE:
        raise MissingError("a shared store needs the native engine")
    with own_directory() as folder:
        store = SharedStore(f"{folder}/store", max_keys=roomy(count), max_bytes=MOST_BYTES, clock=clock)
        yield Limiter(words, store=store), lambda: kept(store, sum(each.stat().st_size for each in files(folder)))


@contextmanager
def in_redis(words: str, count: int, clock: Any) -> Opened:
    from headgate import Limiter
    from headgate.stores.redis import RedisStore

    with serving() as server:
        limiter = Limiter(words, store=RedisStore(server.url, deadline=5.0, connect_timeout=5.0, clock=clock))
        limiter.hit("user:first")
        limiter.hit("user:first")
        server.forget()
        before = server.memory()

        def grown() -> int:
            now, (held, _) = server.memory(), server.keys()
            if held != count:
                raise WorkloadError(f"{words}: {count} clients were hit and {held} keys are held")
            return now - before

        yield limiter, grown


def as_articles(words: str, count: int) -> float:
    """Bytes a client in the structures that the articles describe, filled by the commands that they name."""
    import redis

    from headgate import Limit

    limit = Limit.parse(words)
    with serving() as server, redis.Redis.from_url(server.url) as client:
        write_as_articles(client, "user:first", limit)
        server.forget()
        before = server.memory()
        for key in user_keys(count):
            write_as_articles(client, key, limit)
        return (server.memory() - before) / count


def write_as_articles(client: Any, key: str, limit: Any) -> None:
    """A log: a sorted set of stamps. Slots: a hash of counts by the time of each slot. Two counters: two strings."""
    parts = turns_of(limit)
    if limit.step.KIND != "window":
        stamps = range(FIRST, FIRST + limit.period_us, limit.period_us // limit.amount)
        client.zadd(key, {str(stamp): stamp for stamp in stamps})
        client.pexpire(key, DAY_MS)
    elif parts > 2:
        slots = range(FIRST // SECOND, (FIRST + limit.period_us) // SECOND, limit.period_us // SECOND // parts)
        client.hset(key, mapping={str(slot): limit.amount // parts for slot in slots})
        client.pexpire(key, DAY_MS)
    else:
        for window in (FIRST // limit.period_us, FIRST // limit.period_us + 1):
            client.set(f"{key}:{window}", limit.amount // parts, px=DAY_MS)


OPENED = {"memory": in_memory, "shared": in_shared, "redis": in_redis}
