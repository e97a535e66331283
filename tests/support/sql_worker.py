"""A process that spends limits in databases as fast as it can; prints how many units of each limit it got."""

from __future__ import annotations

import json
import sys

from headgate import Limiter
from headgate.stores import open_store
from headgate.testing.suite_limits import EVERY_ALGORITHM

AMOUNT = 40


def limits() -> list[str]:
    """A limit of every algorithm that gets nothing back while a test runs."""
    return [f"{AMOUNT}/100 weeks by {name} as n{at}" for at, name in enumerate(EVERY_ALGORITHM)]


def spend(url: str, hits: int) -> list[int]:
    """Hit one key under every limit in turn."""
    store = open_store(url, None)
    limiters = [Limiter(text, store=store, on_error="raise") for text in limits()]
    spent = [sum(bool(limiter.hit("k")) for _ in range(hits)) for limiter in limiters]
    store.close()
    return spent


if __name__ == "__main__":
    print(json.dumps([spend(url, int(sys.argv[1])) for url in sys.argv[2:]]))
