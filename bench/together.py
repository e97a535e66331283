"""Several processes on one key at once: how many decisions a second in total, and how many hits were admitted."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
from collections.abc import Awaitable, Callable
from datetime import timedelta
from inspect import isawaitable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

from bench.contestant import MissingError, WorkloadError, compiled
from bench.measure import Figures
from bench.sharer import WEEKS, Place, Sharer, own_directory

PROCESSES = 4
LONGER = 2
"""Runs of several processes last so many times as long as those of one."""
PATIENCE = 60.0
PERIOD_NS = timedelta(weeks=WEEKS) // timedelta(microseconds=1) * 1_000
TOGETHER = """
{kind} loop(count, {names}):
    admitted = degraded = 0
    start = perf_counter_ns()
    for _ in repeat(None, count):
        answer = {call}
        if {yes}:
            admitted += 1
        if {degraded}:
            degraded += 1
    return start, perf_counter_ns(), admitted, degraded
"""


class Lap(NamedTuple):
    """What one process did, and when."""

    start: int
    end: int
    admitted: int
    degraded: int


class Run(NamedTuple):
    """All processes: from the first to pass the barrier to the end of the last."""

    span: int
    hits: int
    amount: int
    admitted: int
    degraded: int

    @property
    def is_exact(self) -> bool:
        """No hit too many but for what drained, if it took that long, and for answers that were not the table's."""
        drained = self.amount * self.span // PERIOD_NS
        return 0 <= self.admitted - self.amount <= drained + self.degraded


def hit_together(sharer: Sharer, seconds: float, repeats: int) -> Figures:
    """Nanoseconds of a decision, the time of all processes being one time: the best of all repeats."""
    runs = [run_once(sharer)]
    while len(runs) < repeats and sum(run.span for run in runs) < LONGER * repeats * seconds * 1e9:
        runs.append(run_once(sharer))
    worst = max(runs, key=lambda run: abs(run.admitted - run.amount))
    return {"ns": min(run.span / run.hits for run in runs), "repeats": len(runs), **worst._asdict()}


def run_once(sharer: Sharer) -> Run:
    """Five hits in six fit the limit."""
    hits = PROCESSES * sharer.count
    with own_directory() as directory:
        place = Place(Path(directory), hits * 5 // 6)
        with sharer.begin(place) as given:
            laps = in_processes(sharer, place._replace(given=given))
    span = max(lap.end for lap in laps) - min(lap.start for lap in laps)
    admitted, degraded = sum(lap.admitted for lap in laps), sum(lap.degraded for lap in laps)
    run = Run(span, hits, place.amount, admitted, degraded)
    if sharer.exact and not run.is_exact:
        raise WorkloadError(f"{sharer.name}: of {hits} hits on a limit of {run.amount}, {admitted} were admitted")
    return run


def in_processes(sharer: Sharer, place: Place) -> list[Lap]:
    fork = multiprocessing.get_context("fork")
    barrier, started = fork.Barrier(PROCESSES), []
    try:
        for _ in range(PROCESSES):
            reader, writer = fork.Pipe(duplex=False)
            process = fork.Process(target=take_part, args=(sharer, place, barrier, writer))
            process.start()
            writer.close()
            started.append((process, reader))
        return [lap_of(sharer, reader) for _, reader in started]
    finally:
        for process, reader in started:
            leave(process, reader)


def take_part(sharer: Sharer, place: Place, barrier: Any, writer: Connection) -> None:
    with asyncio.Runner() as runner:
        try:
            names = resolved(runner, sharer.open(place))
        except (ImportError, MissingError) as reason:
            writer.send(reason)
            return
        loop: Callable[..., Any] = compiled(TOGETHER, names, sharer.call, yes=sharer.yes, degraded=sharer.degraded)
        gc.collect()
        gc.disable()
        barrier.wait(PATIENCE)
        writer.send(resolved(runner, loop(sharer.count, **names)))


def resolved(runner: asyncio.Runner, answer: Any | Awaitable[Any]) -> Any:
    return runner.run(answer) if isawaitable(answer) else answer


def lap_of(sharer: Sharer, reader: Connection) -> Lap:
    try:
        lap = reader.recv()
    except EOFError:
        raise WorkloadError(f"{sharer.name}: one of its processes ended before its work was done") from None
    if isinstance(lap, Exception):
        raise lap
    return Lap(*lap)


def leave(process: BaseProcess, reader: Connection) -> None:
    process.join(1)
    process.kill()
    process.join()
    reader.close()
