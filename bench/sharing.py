"""Headgate's shared store: alone beside the memory store, and under several processes at once."""

from __future__ import annotations

from functools import cache
from tempfile import TemporaryDirectory
from typing import Any

from bench.contestant import KEY, LARGE, PERIOD_WEEKS, Contestant, MissingError, Names
from bench.ours import CALL, SHORT_LOG, YES
from bench.sharer import WEEKS, Place, Sharer, own_directory

ALGORITHMS = ("token-bucket", "fixed-window", "sliding-window", "sliding-log")
STORES = ("memory", "shared")
FEW_KEYS = 1_000
"""A shared table is allocated as a whole: a log of 2,100 stamps for so many keys takes 23 MB."""
LOG = SHORT_LOG + 100
COUNT = 600_000
"""Hits of each of several processes: of the limit that goes with them one unit drains in 1.2 s, a run takes less."""
COUNT_OF_LOG = 60_000
"""A log has 8 bytes for each."""


def contestants() -> list[Contestant]:
    alone = [_alone(store, algorithm) for store in STORES for algorithm in ALGORITHMS]
    return [*alone, *(_roomy(store, keys) for store in STORES for keys in (100_000, 1_000_000))]


def sharers() -> list[Sharer]:
    return [_sharer(algorithm) for algorithm in ALGORITHMS]


def together(algorithm: str) -> str:
    return f"headgate {algorithm}"


def alone(store: str, algorithm: str) -> str:
    return f"headgate {algorithm} in {store}"


def roomy(store: str, keys: int) -> str:
    return f"headgate {keys:,} keys in {store}"


def _alone(store: str, algorithm: str) -> Contestant:
    """Each store is opened once and the key made as new for each run: both find their pages where they were."""

    def make(amount: int) -> Names:
        limiter = _limiter(store, f"{amount}/{PERIOD_WEEKS} weeks by {algorithm}", FEW_KEYS)
        limiter.reset(KEY)
        return {"limiter": limiter, "key": KEY}

    amount, most = (LOG, SHORT_LOG) if algorithm == "sliding-log" else (LARGE, LARGE // 2)
    return Contestant(alone(store, algorithm), make, CALL, YES, amount=amount, most=most)


def _roomy(store: str, keys: int) -> Contestant:
    def make(amount: int) -> Names:
        return {"limiter": _limiter(store, f"{amount}/{PERIOD_WEEKS} weeks", keys), "key": KEY}

    return Contestant(roomy(store, keys), make, CALL, YES)


@cache
def _limiter(store: str, words: str, max_keys: int) -> Any:
    from headgate import Limiter

    path = _directory(words).name if store == "shared" else ""
    return Limiter(words, store=f"{store}://{path}?max_keys={max_keys}")


@cache
def _directory(words: str) -> TemporaryDirectory[str]:
    check_engine()
    return own_directory()


def check_engine() -> None:
    from headgate.engine import NATIVE

    if not NATIVE:
        raise MissingError("the pure engine has no shared store")


def _sharer(algorithm: str) -> Sharer:
    is_log = algorithm == "sliding-log"

    def open_shared(place: Place) -> Names:
        from headgate import Limiter

        check_engine()
        words = f"{place.amount}/{WEEKS} weeks by {algorithm}"
        store = f"shared://{place.directory}?max_keys={1 if is_log else FEW_KEYS}"
        return {"limiter": Limiter(words, store=store), "key": KEY}

    # A plain bucket is never locked: only what is can be held by a process that has lost its core.
    degraded = "False" if algorithm == "token-bucket" else "answer.degraded"
    count = COUNT_OF_LOG if is_log else COUNT
    return Sharer(together(algorithm), open_shared, CALL, count, YES, degraded=degraded)
