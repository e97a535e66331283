"""What else limits several processes of one host, each set up as its documentation shows."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from bench.contestant import KEY, MissingError, Names
from bench.sharer import WEEKS, Place, Sharer

MEMCACHED, MANAGER, SQLITE = "limits, memcached", "pyrate-limiter, multiprocess", "pyrate-limiter, SQLite"
TRAFFIK, TRAFFIK_BUCKET = "traffik, FixedWindow", "traffik, TokenBucket"
RIVALS = (MEMCACHED, MANAGER, SQLITE, TRAFFIK, TRAFFIK_BUCKET)
PUT = "bucket.put(RateItem(key, bucket.now()))"
"""Not its limiter: with blocking=False that says no whenever another process holds the lock, whatever the limit."""
STRATEGY, NO_WAIT = "await strategy(key, rate, backend)", "answer == 0"
SERVER_SECONDS = 10


def sharers() -> list[Sharer]:
    return [
        Sharer(MEMCACHED, _limits, "limiter.hit(item, key)", 3_000, begin=_memcached),
        Sharer(MANAGER, _pyrate_manager, PUT, 500, begin=_manager),
        Sharer(SQLITE, _pyrate_sqlite, PUT, 250),
        Sharer(TRAFFIK, partial(_traffik, "FixedWindow"), STRATEGY, 1_000, NO_WAIT, _segment),
        Sharer(TRAFFIK_BUCKET, partial(_traffik, "TokenBucket"), STRATEGY, 1_000, NO_WAIT, _segment, exact=False),
    ]


@contextmanager
def _memcached(place: Place) -> Iterator[Path]:
    """A server of our own on a socket in the directory, ended with the run."""
    import pwd

    if shutil.which("memcached") is None:
        raise MissingError("memcached is not installed")
    socket, user = place.directory / "socket", pwd.getpwuid(os.geteuid()).pw_name
    server = subprocess.Popen(["memcached", "-s", str(socket), "-u", user])
    try:
        until = monotonic() + SERVER_SECONDS
        while not socket.exists():
            if server.poll() is not None or monotonic() > until:
                raise MissingError("memcached does not start")
            sleep(0.01)
        yield socket
    finally:
        server.terminate()
        server.wait()


def _limits(place: Place) -> Names:
    import pymemcache  # noqa: F401 - limits itself would find another error for it
    from limits import RateLimitItemPerDay
    from limits.storage import MemcachedStorage
    from limits.strategies import FixedWindowRateLimiter

    limiter = FixedWindowRateLimiter(MemcachedStorage(f"memcached://{place.given}"))
    return {"limiter": limiter, "item": RateLimitItemPerDay(place.amount, 7 * WEEKS), "key": KEY}


def _pyrate_names(bucket: Any) -> Names:
    from pyrate_limiter import RateItem

    return {"bucket": bucket, "RateItem": RateItem, "key": KEY}


def _pyrate_rates(place: Place) -> list[Any]:
    from pyrate_limiter import Duration, Rate

    return [Rate(place.amount, Duration.WEEK * WEEKS)]


@contextmanager
def _manager(place: Place) -> Iterator[Any]:
    from pyrate_limiter import MultiprocessBucket

    with multiprocessing.Manager() as manager:
        yield MultiprocessBucket(_pyrate_rates(place), manager.list(), multiprocessing.RLock())


def _pyrate_manager(place: Place) -> Names:
    return _pyrate_names(place.given)


def _pyrate_sqlite(place: Place) -> Names:
    from pyrate_limiter import SQLiteBucket

    path = str(place.directory / "bucket.sqlite")
    return _pyrate_names(SQLiteBucket.init_from_file(_pyrate_rates(place), db_path=path, use_file_lock=True))


@contextmanager
def _segment(place: Place) -> Iterator[Any]:
    from traffik.backends.multiprocess import MultiProcessInMemoryBackend

    backend = MultiProcessInMemoryBackend(namespace=place.directory.name, max_keys=1_000)
    backend.start()
    try:
        yield backend
    finally:
        asyncio.run(backend.close())


async def _traffik(strategy: str, place: Place) -> Names:
    import traffik.strategies
    from traffik import Rate

    await place.given.initialize()
    rate = Rate(limit=place.amount, hours=WEEKS * 7 * 24)
    return {"strategy": getattr(traffik.strategies, strategy)(), "rate": rate, "backend": place.given, "key": KEY}
