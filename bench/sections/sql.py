"""Stores in databases, beside the buckets of pyrate-limiter in the same databases."""

from __future__ import annotations

from bench.jobs import Job, Results, Scale, divided, smallest
from bench.report import Table, Target, number, ratio
from bench.sections.section import Section
from bench.sql import MANY, OURS, POSTGRES, PROCESSES, SQLITE, THEIRS, name

PLACES = (POSTGRES, SQLITE)
RUNS = [(where, processes, keys) for where in PLACES for processes in (1, PROCESSES) for keys in (1, MANY)]
GREW = 1.5
"""The most by which the median hit may be slower beside a million rows: an index has one more level."""


def job(who: str, where: str, processes: int, keys: int) -> Job:
    return Job("sql", name(who, where, processes), keys)


def grown(where: str, scale: Scale) -> Job:
    return Job("sql grown", name(OURS, where, 1), scale.keys)


def jobs(scale: Scale) -> list[Job]:
    each = [job(who, *run) for run in RUNS for who in (OURS, THEIRS)]
    return [*each, *(grown(where, scale) for where in PLACES)]


def tables(results: Results, scale: Scale) -> list[Table]:
    head = ("who, where", "keys", "decisions/s", "CPU us", "p99 ms", "hits", "fit the limit", "admitted", "faster")
    return [
        Table(head, [row(results, who, *run) for run in RUNS for who in (OURS, THEIRS)]),
        Table(
            ("rows", "in", "hit us, empty", "hit us", "p99 ms, empty", "p99 ms", "bytes a key"),
            [grown_row(results, where, scale) for where in PLACES],
        ),
    ]


def row(results: Results, who: str, where: str, processes: int, keys: int) -> tuple[str, ...]:
    own = job(who, where, processes, keys)
    ns, cpu, p99 = (results.best(own, figure) for figure in ("ns", "cpu", "p99"))
    counts = [number(results.best(own, figure), digits=0) for figure in ("hits", "amount", "admitted")]
    theirs = results.best(job(THEIRS, where, processes, keys))
    return (
        own.contestant, str(keys), number(divided(1e9, ns), digits=0), number(divided(cpu, 1e3), digits=0),
        number(divided(p99, 1e6), digits=2), *counts, ratio(divided(theirs, ns)),
    )  # fmt: skip


def grown_row(results: Results, where: str, scale: Scale) -> tuple[str, ...]:
    own = grown(where, scale)
    empty, full, empty_p99, p99, size = (
        results.best(own, figure) for figure in ("empty", "ns", "empty_p99", "p99", "bytes")
    )
    us = [number(divided(each, 1e3), digits=0) for each in (empty, full)]
    ms = [number(divided(each, 1e6), digits=2) for each in (empty_p99, p99)]
    return (f"{scale.keys:,}", where, *us, *ms, number(size, digits=0))


def targets(results: Results, scale: Scale) -> list[Target]:
    found = []
    for where in PLACES:
        faster = [
            divided(results.best(job(THEIRS, *run)), results.best(job(OURS, *run))) for run in RUNS if run[0] == where
        ]
        found.append(Target(f"{where}: decisions/s against {THEIRS}, the least", 2, smallest(faster), at_least=True))
        own = grown(where, scale)
        slower = divided(results.best(own), results.best(own, "empty"))
        found.append(Target(f"{where}: a hit beside {scale.keys:,} rows, against none", GREW, slower))
    return found


SECTION = Section(
    "sql",
    "28. sql: limits in a database",
    f"""Each run has a database of its own: a PostgreSQL server with the settings that it comes with, or a SQLite file;
    in memory if the machine has such a place, so that the disk is not measured. Processes wait at a barrier and hit one
    key or {MANY}; the time is that of all processes together, CPU is that of the processes and of the server. Five hits
    in six fit the limits, and of headgate exactly those must be admitted. The buckets of pyrate-limiter are asked
    directly, and a key is a bucket: in PostgreSQL, it refuses a hit while another process decides, so its counts are
    only shown.""",
    jobs,
    tables,
    targets,
)
