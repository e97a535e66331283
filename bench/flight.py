"""Who lets so many in at once, and what one turn takes: in, and out again.

Every holder has room for 20 at once, but for a lock, which has room for one. Before it is timed and after it has to let
exactly so many in, refuse the next ones, and be empty again.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any, Literal

from bench.contestant import KEY, Names, WorkloadError, compiled, is_async
from bench.jobs import Job, Scale
from bench.measure import Figures
from bench.remote import Opened, entered, resolved, user_keys
from bench.remote_measure import LONGER, OF_A_TASK, TASKS
from bench.server import Server, serving

ROOM = 20
REFUSED = 2
"""Few, since self-limiters cannot refuse before a second has passed."""
TURNS_A_SECOND = {"process": 2_000_000, "host": 2_000_000, "server": 10_000}
"""About: runs are of a fixed length."""
TURNS = """
{kind} loop(key, count, {names}):
    start = perf_counter_ns()
    for _ in repeat(None, count):
        {turn}
    return perf_counter_ns() - start
"""
FILL = """
{kind} loop(key, count, {names}):
    held, verdicts = [], []
    for _ in repeat(None, count):
        answer = {call}
        verdicts.append(bool({yes}))
        if verdicts[-1]:
            held.append(answer)
    for answer in held:
        {give}
    return verdicts
"""


@dataclass(frozen=True)
class Holder:
    """`open(url)` gives the names that its words use, besides `key`."""

    name: str
    home: Literal["process", "host", "server"]
    """Who shares it."""
    open: Callable[[str], Opened]
    turn: str
    """What is timed, a statement: take one and give it back."""
    take: str
    """An expression that takes one, or is refused without waiting longer than it must."""
    give: str
    """A statement that gives back what is called `answer`."""
    yes: str = "answer"
    room: int = ROOM
    scripts: int | None = None
    """How many of them a turn is known to run in the server."""

    @property
    def is_async(self) -> bool:
        return is_async(self.take)


class Stay:
    """A holder that is set up."""

    def __init__(self, holder: Holder, server: Server | None, names: Names) -> None:
        self.holder, self.server, self._names = holder, server, names
        self._turns = compiled(TURNS, names, holder.take, turn=holder.turn)
        self._fill = compiled(FILL, names, holder.take, yes=holder.yes, give=holder.give)

    async def turns(self, key: str, count: int) -> int:
        """Nanoseconds of so many turns, one after the other."""
        span: int = await resolved(self._turns(key, count, **self._names))
        return span

    async def prove(self) -> None:
        """Exactly as many as there is room for get in, and all of them out again."""
        room = self.holder.room
        for _ in range(2):
            verdicts = await resolved(self._fill(KEY, room + REFUSED, **self._names))
            what = f"of {room + REFUSED} that came to a room for {room}, {sum(verdicts)} were let in: {verdicts}"
            self.expect(verdicts == [True] * room + [False] * REFUSED, what)

    def expect(self, done: bool, what: str) -> None:
        if not done:
            raise WorkloadError(f"{self.holder.name}: {what}")


async def measure_holder(job: Job, holder: Holder, scale: Scale) -> Figures:
    async with AsyncExitStack() as stack:
        server = stack.enter_context(serving()) if holder.home == "server" else None
        stay = Stay(holder, server, await entered(stack, holder.open(server.url if server else "")))
        await stay.prove()
        figures = await MEASURES[job.kind](stay, scale)
        await stay.prove()
        return {"call": holder.turn, **figures}


async def one_by_one(stay: Stay, scale: Scale) -> Figures:
    """Nanoseconds of a turn, the next one after it; at a server also its round trips."""
    count = round(scale.seconds * TURNS_A_SECOND[stay.holder.home])
    await stay.turns(KEY, max(1, count // 10))
    if stay.server is None:
        with _no_collector():
            return {"ns": min([await stay.turns(KEY, count) for _ in range(scale.repeats)]) / count}
    with stay.server.on_one_core(), _no_collector():
        before = stay.server.spent()
        spans = [await stay.turns(KEY, count) for _ in range(scale.repeats)]
        spent = stay.server.spent().since(before)
    turns = count * scale.repeats
    known = stay.holder.scripts
    stay.expect(known in (None, spent.scripts / turns), f"{turns} turns were {spent.scripts} scripts")
    return {"ns": min(spans) / count, "trips": spent.trips / turns, "scripts": spent.scripts / turns}


async def crowd(stay: Stay, scale: Scale) -> Figures:
    """Nanoseconds of a turn when so many tasks each take one after the other, with keys of their own."""
    assert stay.server is not None
    each, keys = max(1, round(OF_A_TASK * scale.seconds * 10)), user_keys(TASKS)
    spans: list[int] = []

    async def together(count: int) -> int:
        start = perf_counter_ns()
        await asyncio.gather(*(stay.turns(key, count) for key in keys))
        return perf_counter_ns() - start

    await together(1)
    with _no_collector():
        before = stay.server.spent()
        while len(spans) < scale.repeats and sum(spans) < LONGER * scale.repeats * scale.seconds * 1e9:
            spans.append(await together(each))
        spent = stay.server.spent().since(before)
    turns = TASKS * each
    return {"ns": min(spans) / turns, "trips": spent.trips / (turns * len(spans))}


@contextmanager
def _no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


MEASURES: dict[str, Any] = {"turn": one_by_one, "turn crowd": crowd}
