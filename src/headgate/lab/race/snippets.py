"""The snippets that everybody copies, written here as articles and answers write them. Each of them is wrong."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

PERIOD: Final = 3600
"""Seconds. In so long a period nothing expires, and a bucket refills by less than one while a contest runs."""
Client = Any
"""A client of redis-py."""


def get_then_set(client: Client, key: str, limit: int) -> bool:
    """Count in a plain key."""
    count = int(client.get(key) or 0)
    if count >= limit:
        return False
    client.set(key, count + 1, ex=PERIOD)
    return True


def incr_then_expire(client: Client, key: str, limit: int) -> bool:
    """Count in a key that the first request gives a time to live."""
    count: int = client.incr(key)
    if count == 1:
        client.expire(key, PERIOD)
    return count <= limit


def count_then_add(client: Client, key: str, limit: int) -> bool:
    """Keep a log in a sorted set: look first, add then."""
    now = time.time()
    pipe = client.pipeline()
    pipe.zremrangebyscore(key, 0, now - PERIOD)
    pipe.zcard(key)
    count: int = pipe.execute()[1]
    if count >= limit:
        return False
    client.zadd(key, {f"{now}-{time.perf_counter_ns()}": now})
    client.expire(key, PERIOD)
    return True


def add_then_count(client: Client, key: str, limit: int) -> bool:
    """Keep a log in a sorted set: all in one pipeline."""
    now = time.time()
    pipe = client.pipeline()
    pipe.zremrangebyscore(key, 0, now - PERIOD)
    pipe.zadd(key, {f"{now}-{time.perf_counter_ns()}": now})
    pipe.zcard(key)
    pipe.expire(key, PERIOD)
    count: int = pipe.execute()[2]
    return count <= limit


def bucket_in_a_hash(client: Client, key: str, limit: int) -> bool:
    """Keep the tokens of a bucket, and when they were counted."""
    now = time.time()
    tokens, since = client.hmget(key, "tokens", "since")
    level = limit if tokens is None else min(limit, float(tokens) + (now - float(since)) * limit / PERIOD)
    if level < 1:
        return False
    client.hset(key, mapping={"tokens": level - 1, "since": now})
    client.expire(key, PERIOD)
    return True


class Snippet(NamedTuple):
    """A snippet, and the fault that it has."""

    name: str
    admit: Callable[[Client, str, int], bool]
    limit: int
    fault: str
    """In one line; `{members}` is the number of members that are in a sorted set when the contest is over."""


COPIED: Final = (
    Snippet(
        "GET, then SET",
        get_then_set,
        30,
        "callers that read the same count write the same next one: all of them pass, one is counted",
    ),
    Snippet(
        "INCR, then EXPIRE",
        incr_then_expire,
        30,
        "counts well, but a caller that dies between the two leaves a key that refuses for ever",
    ),
    Snippet(
        "sorted set, count then add",
        count_then_add,
        150,
        "callers that count before the others have added all pass: the pipeline ends before the ZADD",
    ),
    Snippet(
        "sorted set, add then count",
        add_then_count,
        150,
        "refused requests are added too, {members:,} members here: a client that goes on asking stays refused",
    ),
    Snippet(
        "bucket in a hash",
        bucket_in_a_hash,
        30,
        "callers that read the same tokens write the same rest: all of them pass, one is charged",
    ),
)
OURS: Final = (("headgate, token-bucket", "30/hour"), ("headgate, sliding-log", "150/hour by sliding-log"))
