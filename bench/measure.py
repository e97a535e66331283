"""What is measured of one contestant, in a process of its own. Each measurement first proves its workload."""

from __future__ import annotations

import asyncio
import gc
import random
from array import array
from collections.abc import Callable
from mmap import PAGESIZE
from pathlib import Path
from statistics import median
from typing import Any

from bench.contestant import (
    KNOWN_KEYS,
    NEW_KEYS,
    NEW_KEYS_ONE_BY_ONE,
    OVER,
    SECOND_YES,
    SMALL,
    TIMED,
    TRIAL,
    Contestant,
    Names,
    expect,
)

Figures = dict[str, Any]

WARM_UP = 8
MOST_REPEATS = 50
STATM = Path("/proc/self/statm")
ONE_EACH = 1
"""The limit of a key while a table grows: a key that is remembered is refused the second time."""
ROOMY = 100_000
"""The limit of a key among many: one unit drains in five minutes, so no key is as new again while others arrive."""
FEW = 1_000
"""At most one key in so many may be forgotten: a table of fixed slots can be full for a key before it is full."""
PICKS = 300_000


class Bench:
    """A contestant whose calls are run, or run until complete on one loop."""

    def __init__(self, contestant: Contestant, runner: asyncio.Runner) -> None:
        self.contestant = contestant
        self._run = runner.run if contestant.is_async else lambda answer: answer
        self._trial = self.compile(TRIAL)

    def compile(self, template: str) -> Callable[..., Any]:
        function = self.contestant.compile(template)
        return lambda *args, **names: self._run(function(*args, **names))

    def prove(self) -> None:
        """A limit of 20 admits the first 20 of 25 quick hits and no other."""
        if self.contestant.limits:
            verdicts = self._trial(SMALL + OVER, **self.contestant.make(SMALL))
            what = f"of {SMALL + OVER} hits on a limit of {SMALL}, {sum(verdicts)} were admitted: {verdicts}"
            expect(verdicts == [True] * SMALL + [False] * OVER, self.contestant, what)

    def ready(self) -> Names:
        """Set up anew, warm, and at the path that is to be timed."""
        names = self.contestant.make(self.contestant.amount)
        refused = self.contestant.drain is not None
        if self.contestant.drain is not None:
            self.contestant.drain(names, self.contestant.amount)
        verdicts = self._trial(WARM_UP, **names)
        expect(verdicts == [not refused] * WARM_UP, self.contestant, f"the path was not the one to time: {verdicts}")
        return names

    def forgotten(self, names: Names, count: int) -> int:
        """How many keys that have used their limit of 1 up are admitted once more."""
        if not self.contestant.limits:
            return 0
        forgotten: int = self.compile(SECOND_YES)(count, **names)
        expect(forgotten * FEW <= count, self.contestant, f"{forgotten} of {count} keys were forgotten")
        return forgotten


def time_calls(bench: Bench, seconds: float, repeats: int) -> Figures:
    """Nanoseconds of one turn of the loop, call included: the best of all repeats."""
    timed, most = bench.compile(TIMED), bench.contestant.most

    def once(count: int) -> int:
        return _timed(bench, timed, count, **bench.ready())

    count = _calibrated(once, round(seconds * 1e9), most)
    spans = [once(count)]
    while len(spans) < repeats or (len(spans) < MOST_REPEATS and sum(spans) < repeats * seconds * 1e9):
        spans.append(once(count))
    return {"ns": min(spans) / count, "median_ns": median(spans) / count, "hits": count, "repeats": len(spans)}


def _timed(bench: Bench, function: Callable[..., Any], what: object, **names: Any) -> int:
    gc.collect()
    gc.disable()
    span: int
    span, allowed = function(what, **names)
    gc.enable()
    refused = bench.contestant.drain is not None
    expect(allowed is not refused, bench.contestant, f"the last answer of a timed run was {'yes' if allowed else 'no'}")
    return span


def _calibrated(once: Callable[[int], int], goal_ns: int, most: int) -> int:
    """How many hits take about so long."""
    count = 100
    while count < most:
        span = once(count)
        if span * 10 > goal_ns:
            return min(most, 1 + count * goal_ns // span)
        count *= 10
    return most


def grow(bench: Bench, count: int) -> Figures:
    """Resident bytes that each of so many new keys adds, and the time of a hit, the making of its key included."""
    names, new_keys = bench.contestant.make(ONE_EACH), bench.compile(NEW_KEYS)
    before = resident()
    span, allowed = new_keys(count, **names)
    bytes_a_key = (resident() - before) / count
    expect(allowed, bench.contestant, f"new key number {count} was refused")
    store = getattr(names.get("limiter"), "store", None)
    tables = {} if store is None else {"table_bytes": store.bytes() / count}
    return {"ns": span / count, "bytes": bytes_a_key, "forgotten": bench.forgotten(names, count), **tables}


def resident() -> int:
    gc.collect()
    return int(STATM.read_text().split()[1]) * PAGESIZE


def stalls(bench: Bench, count: int) -> Figures:
    """The longest single hits while so many new keys arrive, in nanoseconds, the reading of the clock included."""
    names, one_by_one = bench.contestant.make(ONE_EACH), bench.compile(NEW_KEYS_ONE_BY_ONE)
    spans = array("q", bytes(8 * count))
    expect(one_by_one(spans, **names), bench.contestant, f"new key number {count} was refused")
    bench.forgotten(names, count)
    ranked = sorted(spans)
    return {
        "longest": ranked[-1],
        "second": ranked[-2],
        "p99999": ranked[-1 - count // 100_000],
        "median": ranked[count // 2],
    }


def spread(bench: Bench, count: int, repeats: int) -> Figures:
    """Nanoseconds of one turn of a loop over keys chosen at random among so many that exist."""
    names, known_keys = bench.contestant.make(ROOMY), bench.compile(KNOWN_KEYS)
    keys = [f"user:{number}" for number in range(count)]
    known_keys(keys, **names)
    if bench.contestant.limits:
        held = names["limiter"].store.keys()
        expect((count - held) * FEW <= count, bench.contestant, f"{count} keys were hit and {held} are held")
    picks = random.Random(0).choices(keys, k=PICKS)
    spans = [_timed(bench, known_keys, picks, **names) for _ in range(repeats)]
    return {"ns": min(spans) / PICKS, "median_ns": median(spans) / PICKS}
