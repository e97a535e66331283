"""A process that spends limits in a database as fast as it can; prints how many units of each limit it got."""

from __future__ import annotations

import json
import sys

from headgate import Limiter
from headgate.testing.suite_limits import EVERY_ALGORITHM

AMOUNT = 40


def limits() -> list[str]:
    """A limit of every algorithm that gets nothing back while a test runs."""
    return [f"{AMOUNT}/100 weeks by {name} as n{at}" for at, name in enumerate(EVERY_ALGORITHM)]


def main(url: str, hits: int) -> None:
    """Hit one key under every limit in turn, then two keys in one decision, in an order of its own."""
    spent = []
    for text in limits():
        limiter = Limiter(text, store=url, on_error="raise")
        spent.append(sum(bool(limiter.hit("k")) for _ in range(hits)))
        limiter.store.close()
    print(json.dumps(spent))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
