"""Items that leave at a constant rate: by a shaper that holds its source back, and by the machine's own timers, which
nothing can be better than."""

from __future__ import annotations

import asyncio
import time
from itertools import count
from typing import Any, NamedTuple

RATE = 3_000
QUEUE = 5_000
WORDS = f"{RATE}/second queue {QUEUE}"
SHAPER, BARE_THREAD = "Shaper", "time.sleep"
ASYNC_SHAPER, BARE_LOOP = "AsyncShaper", "loop.call_at"


class Flow(NamedTuple):
    """What left: the items, when each was due and when it left, in microseconds of one clock."""

    items: list[int]
    due: list[int]
    left: list[int]


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

    def flow(self) -> Flow:
        return Flow(self.items, self.due[: self.enough], self.left)


def in_thread(name: str, enough: int) -> Flow:
    if name == BARE_THREAD:
        return _sleeps(enough)
    from headgate import Shaper

    shaper, note = Shaper(WORDS), Note(enough)
    now = shaper.store.clock.now_us
    with shaper.drain(count()) as pump:
        note.promises(pump)
        for item in pump:
            if note.leaves(item, now()):
                break
    return note.flow()


async def in_loop(name: str, enough: int) -> Flow:
    if name == BARE_LOOP:
        return await _calls(enough)
    from headgate import AsyncShaper

    shaper, note = AsyncShaper(WORDS), Note(enough)
    now = shaper.store.clock.now_us
    async with shaper.drain(count()) as pump:
        note.promises(pump)
        async for item in pump:
            if note.leaves(item, now()):
                break
    return note.flow()


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
    return note.flow()


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
    return note.flow()
