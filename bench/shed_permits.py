"""A permit of an idle load shedder beside a semaphore of the standard library: taken, and ended.

Both are timed in turn in one process, by its CPU time, so that other work on the machine falls on both. No event loop
runs here: a loop that takes permits without a pause is one that is behind.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from itertools import repeat
from threading import BoundedSemaphore
from time import process_time_ns
from typing import Any

from bench.contestant import WorkloadError
from bench.measure import Figures

ROOM = 20
BLOCK, VALUE = "load shedder's permit, a block", "load shedder's permit, a value"
TURNS = {
    BLOCK: ("with shedder.permit(): pass", "with semaphore: pass"),
    VALUE: ("shedder.permit().release()", "semaphore.acquire(); semaphore.release()"),
}
"""What is timed, and what beside it."""
LOOP = """
def loop(count, shedder, semaphore):
    start = process_time_ns()
    for _ in repeat(None, count):
        {turn}
    return process_time_ns() - start
"""
ALTERNATIONS = 10
"""Runs of each in one repeat, which are shorter by as much."""


def measure_permit(name: str, seconds: float, repeats: int) -> Figures:
    """Nanoseconds of CPU of a turn, and of one of the semaphore."""
    from headgate import LoadShedder

    prove(LoadShedder(ROOM))
    shedder, count = LoadShedder(), max(1_000, round(seconds * 1_000_000 / ALTERNATIONS))
    pair, names = [looped(turn) for turn in TURNS[name]], (shedder, BoundedSemaphore(ROOM))
    gc.collect()
    gc.disable()
    runs = [[turns(count, *names) for turns in pair] for _ in range(repeats * ALTERNATIONS)]
    gc.enable()
    stats = shedder.stats()
    if (stats.in_flight, stats.admitted, stats.refused) != (0, len(runs) * count, {}):
        raise WorkloadError(f"{name}: not every turn was a permit: {stats}")
    ns, semaphore_ns = (min(spans) / count for spans in zip(*runs, strict=True))
    return {"call": TURNS[name][0], "ns": ns, "semaphore_ns": semaphore_ns}


def prove(shedder: Any) -> None:
    """Exactly as many as there is room for are let in, and all of them out again."""
    for _ in range(2):
        permits = [shedder.permit() for _ in range(ROOM + 2)]
        if [bool(permit) for permit in permits] != [True] * ROOM + [False] * 2:
            raise WorkloadError(f"a room for {ROOM} let in {sum(map(bool, permits))} of {ROOM + 2}")
        for permit in permits:
            permit.release()


def looped(turn: str) -> Callable[..., int]:
    names: dict[str, Any] = {"process_time_ns": process_time_ns, "repeat": repeat}
    exec(LOOP.format(turn=turn), names)
    loop: Callable[..., int] = names["loop"]
    return loop
