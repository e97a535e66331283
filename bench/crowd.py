"""Many tasks that wait for one key: how long until the last has left, and what waiting costs."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from time import perf_counter_ns, process_time
from typing import Any, NamedTuple

from bench.contestant import WorkloadError, compiled
from bench.measure import Figures
from bench.waiters import BURST, RATE, Waiter

LEAVE = """
{kind} loop(number, note, {names}):
    answer = {call}
    note(number, bool({yes}))
"""
PATIENCE = 10
"""Times the ideal; then it is given up."""


class Left(NamedTuple):
    number: int
    at_ns: int


class Watch:
    """Notes who leaves, and how many timers are set when the event loop goes to sleep."""

    def __init__(self, loop: Any, patience: asyncio.TimerHandle) -> None:
        self.left: list[Left] = []
        self.refused = 0
        self.timers = 0
        self._scheduled: list[asyncio.TimerHandle] = loop._scheduled
        self._patience = patience
        self._select = loop._selector.select
        loop._selector.select = self._sleep

    def note(self, number: int, admitted: bool) -> None:
        self.left.append(Left(number, perf_counter_ns()))
        self.refused += not admitted

    def _sleep(self, timeout: float | None = None) -> Any:
        if len(self._scheduled) - 1 > self.timers:  # only then can there be more than before
            own = sum(not (each.cancelled() or each is self._patience) for each in self._scheduled)
            self.timers = max(self.timers, own)
        return self._select(timeout)


def ideal(count: int) -> float:
    """Seconds from the first to the last."""
    return (count - BURST) / RATE


async def wait_together(waiter: Waiter, count: int) -> Figures:
    names = waiter.make()
    leave = compiled(LEAVE, names, waiter.call, yes=waiter.yes)
    loop, this = asyncio.get_running_loop(), asyncio.current_task()
    assert this is not None
    patience = loop.call_later(PATIENCE * ideal(count), this.cancel)
    watch = Watch(loop, patience)
    start, cpu = perf_counter_ns(), process_time()
    tasks = [loop.create_task(leave(number, watch.note, **names)) for number in range(count)]
    try:
        await asyncio.gather(*tasks)
    except asyncio.CancelledError:
        raise WorkloadError(f"{waiter.name}: after {PATIENCE * ideal(count):g} s {len(watch.left)} had left") from None
    finally:
        patience.cancel()
    return figures(waiter, watch, start, count) | {"cpu": process_time() - cpu}


def figures(waiter: Waiter, watch: Watch, start: int, count: int) -> Figures:
    left = watch.left
    seconds = (left[-1].at_ns - left[0].at_ns) / 1e9
    overtaken = sum(one.number > other.number for one, other in pairwise(left))
    early = sum(each.at_ns - start < earliest_ns(place) for place, each in enumerate(left))
    expect(waiter, len(left) == count and not watch.refused, f"of {count} waiters {watch.refused} were refused")
    if waiter.ours:
        expect(waiter, not early, f"{early} left before their time")
        expect(waiter, not overtaken, f"{overtaken} left before one that came earlier")
    return {
        "seconds": seconds,
        "beyond": 100 * (seconds / ideal(count) - 1),
        "timers": watch.timers,
        "overtaken": overtaken,
        "early": early,
    }


def earliest_ns(place: int) -> int:
    """When the limit lets so many and one leave, from the start."""
    return max(0, place + 1 - BURST) * 1_000_000_000 // RATE


def expect(waiter: Waiter, done: bool, what: str) -> None:
    if not done:
        raise WorkloadError(f"{waiter.name}: {what}")
