"""Items that leave at a constant rate: a shaper that is fed too much, one that holds its source back, and the machine's
own timers, which nothing can be better than."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from itertools import count
from typing import Any, NamedTuple

RATE = 3_000
QUEUE = 5_000
FED = 50_000
PAUSE = 0.0001
"""What a feeding thread sleeps between looks at its clock; an event loop is asked for the next millisecond."""
WORDS = f"{RATE}/second queue {QUEUE}"
FED_THREAD, HELD_THREAD, BARE_THREAD = "Shaper, fed", "Shaper, holding back", "time.sleep"
FED_LOOP, HELD_LOOP, BARE_LOOP = "AsyncShaper, fed", "AsyncShaper, holding back", "loop.call_at"
IN_THREADS, IN_LOOPS = (FED_THREAD, HELD_THREAD), (FED_LOOP, HELD_LOOP)


class Flow(NamedTuple):
    """What left: the items, when each was due and when it left, in microseconds of one clock."""

    items: list[int]
    due: list[int]
    left: list[int]
    offered: int
    """Items that the source was asked for or came with."""


class Note:
    """Writes down what was promised, and what leaves until enough has."""

    def __init__(self, enough: int) -> None:
        self.due: list[int] = []
        self.items: list[int] = []
        self.left: list[int] = []
        self.enough = enough

    def promises(self, pump: Any) -> None:
        """Listen to the departure times that a pump is given."""
        accept = pump._accept

        def noted(at_us: int, item: int) -> None:
            self.due.append(at_us)
            accept(at_us, item)

        pump._accept = noted

    def leaves(self, item: int, now_us: int) -> bool:
        """Whether that was the last one."""
        self.left.append(now_us)
        self.items.append(item)
        return len(self.left) == self.enough

    def flow(self, offered: int) -> Flow:
        return Flow(self.items, self.due[: self.enough], self.left, offered)


def in_thread(name: str, enough: int) -> Flow:
    if name == BARE_THREAD:
        return _sleeps(enough)
    from headgate import Shaper

    shaper, note = Shaper(WORDS), Note(enough)
    now, fed = shaper.store.clock.now_us, name == FED_THREAD
    with shaper.drain(_fed() if fed else count(), when_full="drop" if fed else "wait") as pump:
        note.promises(pump)
        for item in pump:
            if note.leaves(item, now()):
                break
    return note.flow(pump.accepted + pump.dropped)


async def in_loop(name: str, enough: int) -> Flow:
    if name == BARE_LOOP:
        return await _calls(enough)
    from headgate import AsyncShaper

    shaper, note = AsyncShaper(WORDS), Note(enough)
    now, fed = shaper.store.clock.now_us, name == FED_LOOP
    async with shaper.drain(_fed_in_loop() if fed else count(), when_full="drop" if fed else "wait") as pump:
        note.promises(pump)
        async for item in pump:
            if note.leaves(item, now()):
                break
    return note.flow(pump.accepted + pump.dropped)


def _due(start: float, made: int) -> int:
    """How many a source of 50,000 a second has made since."""
    return max(made, int((time.perf_counter() - start) * FED))


def _fed() -> Iterator[int]:
    start, made = time.perf_counter(), 0
    while True:
        due = _due(start, made)
        yield from range(made, due)
        made = due
        time.sleep(PAUSE)


async def _fed_in_loop() -> AsyncIterator[int]:
    start, made = time.perf_counter(), 0
    while True:
        due = _due(start, made)
        for item in range(made, due):
            yield item
        made = due
        await asyncio.sleep(0.001)


def _instants(start: int, enough: int) -> list[int]:
    return [start + number * 1_000_000 // RATE for number in range(enough)]


def _sleeps(enough: int) -> Flow:
    """A thread that sleeps until the next instant, and does nothing else."""
    note, now = Note(enough), time.monotonic_ns
    note.due = _instants(now() // 1_000, enough)
    for item, at_us in enumerate(note.due):
        while (short := at_us - now() // 1_000) > 0:
            time.sleep(short / 1e6)
        note.leaves(item, now() // 1_000)
    return note.flow(enough)


async def _calls(enough: int) -> Flow:
    """An event loop that is called back at each instant, one timer at a time."""
    loop, note, now = asyncio.get_running_loop(), Note(enough), time.monotonic_ns
    note.due = _instants(now() // 1_000, enough)
    done = loop.create_future()

    def ring() -> None:
        at = len(note.left)
        while at < enough and note.due[at] <= now() // 1_000:
            note.leaves(at, now() // 1_000)
            at += 1
        if at < enough:
            loop.call_at(note.due[at] / 1e6, ring)
        else:
            done.set_result(None)

    ring()
    await done
    return note.flow(enough)
