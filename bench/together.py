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
    admitted = 0
    start = perf_counter_ns()
    for _ in repeat(None, count):
        answer = {call}
        if {yes}:
            admitted += 1
    return start, perf_counter_ns(), admitted
"""


class Run(NamedTuple):
    """All processes: from the first to pass the barrier to the end of the last."""

    span: int
    hits: int
    amount: int
    admitted: int


def hit_together(sharer: Sharer, seconds: float, repeats: int) -> Figures:
    """Nanoseconds of a decision, the time of all processes being one time: the best of all repeats."""
    runs = [run_once(sharer)]
    while len(runs) < repeats and sum(run.span for run in runs) < LONGER * repeats * seconds * 1e9:
        runs.append(run_once(sharer))
    worst = max(runs, key=lambda run: abs(run.admitted - run.amount))
    ns = min(run.span / run.hits for run in runs)
    return {"ns": ns, "hits": worst.hits, "amount": worst.amount, "admitted": worst.admitted, "repeats": len(runs)}


def run_once(sharer: Sharer) -> Run:
    """Five hits in six fit the limit, and exactly those may be admitted, with what drained if the run was that long."""
    hits = PROCESSES * sharer.count
    with own_directory() as directory:
        place = Place(Path(directory), hits * 5 // 6)
        with sharer.begin(place) as given:
            laps = in_processes(sharer, place._replace(given=given))
    starts, ends, admitted = zip(*laps, strict=True)
    run = Run(max(ends) - min(starts), hits, place.amount, sum(admitted))
    drained = run.amount * run.span // PERIOD_NS
    if sharer.exact and not 0 <= run.admitted - run.amount <= drained:
        raise WorkloadError(f"{sharer.name}: of {hits} hits on a limit of {run.amount}, {run.admitted} were admitted")
    return run


def in_processes(sharer: Sharer, place: Place) -> list[tuple[int, int, int]]:
    """When each process began and ended, and how many of its hits were admitted."""
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
        loop: Callable[..., Any] = compiled(TOGETHER, names, sharer.call, sharer.yes)
        gc.collect()
        gc.disable()
        barrier.wait(PATIENCE)
        writer.send(resolved(runner, loop(sharer.count, **names)))


def resolved(runner: asyncio.Runner, answer: Any | Awaitable[Any]) -> Any:
    return runner.run(answer) if isawaitable(answer) else answer


def lap_of(sharer: Sharer, reader: Connection) -> tuple[int, int, int]:
    try:
        lap = reader.recv()
    except EOFError:
        raise WorkloadError(f"{sharer.name}: one of its processes ended before its work was done") from None
    if isinstance(lap, Exception):
        raise lap
    return lap


def leave(process: BaseProcess, reader: Connection) -> None:
    process.join(1)
    process.kill()
    process.join()
    reader.close()
