"""Processes for the tests of shared stores: `python -m tests.support.workers VERB ...`. Each prints a line of JSON."""

from __future__ import annotations

import json
import mmap
import os
import sys
import time
from collections.abc import Callable

from headgate import Limiter


def hammer(url: str, limits: str, hits: str) -> dict[str, int]:
    """Hit one key so often, as soon as a line on standard input says go. What cannot be answered exactly is denied."""
    limiter = Limiter(limits, store=url, on_error="deny")
    print("ready", flush=True)
    sys.stdin.readline()
    admitted = degraded = 0
    for _ in range(int(hits)):
        decision = limiter.hit("k")
        admitted += decision.allowed
        degraded += decision.degraded
    return {"admitted": admitted, "degraded": degraded}


def storm(url: str, limits: str, ledger: str, place: str) -> dict[str, int]:
    """Hit until the ledger's last word says that it is over, writing every admission down where no kill can undo it."""
    limiter = Limiter(limits, store=url, on_error="deny")
    with open(ledger, "r+b") as file:
        counts = memoryview(mmap.mmap(file.fileno(), 0)).cast("q")
    end = time.monotonic() + 120
    while not counts[-1] and time.monotonic() < end:
        for _ in range(50):
            counts[int(place)] += limiter.hit("k").allowed
    return {}


def linger(url: str, limits: str) -> dict[str, int]:
    """Take part and do nothing more, until standard input ends."""
    limiter = Limiter(limits, store=url)
    limiter.hit("linger")
    print("ready", flush=True)
    sys.stdin.read()
    return {"pid": os.getpid()}


if __name__ == "__main__":
    verbs: dict[str, Callable[..., dict[str, int]]] = {"hammer": hammer, "storm": storm, "linger": linger}
    print(json.dumps(verbs[sys.argv[1]](*sys.argv[2:])), flush=True)
