"""Bytes a key, and the longest hit while a table grows."""

from __future__ import annotations

from bench.jobs import Job, Results, Scale
from bench.measure import STATM
from bench.report import Table, Target, number
from bench.rivals import KEYED
from bench.sections.section import Section

OURS, MANY, EMPTY = "headgate token-bucket", "headgate ten million keys", "empty"


def jobs(scale: Scale) -> list[Job]:
    if not STATM.exists():
        return stall_jobs(scale)
    return [*stall_jobs(scale), *growth_jobs(scale)]


def stall_jobs(scale: Scale) -> list[Job]:
    return [Job("stalls", OURS, scale.keys), Job("stalls", EMPTY, scale.keys)]


def growth_jobs(scale: Scale) -> list[Job]:
    return [
        Job("grow", EMPTY, scale.keys),
        Job("grow", OURS, scale.keys),
        *([Job("grow", MANY, scale.many_keys)] if scale.many_keys else []),
        Job("grow", OURS, scale.rival_keys),
        *(Job("grow", rival, scale.rival_keys) for rival in KEYED),
    ]


def tables(results: Results, scale: Scale) -> list[Table]:
    growth = [
        (
            job.contestant,
            f"{job.keys:,}",
            number(results.best(job, "bytes")),
            number(results.best(job, "table_bytes")),
            number(results.best(job)),
            number(results.best(job, "forgotten"), digits=0),
        )
        for job in growth_jobs(scale)
    ]
    return [
        Table(("contestant", "new keys", "resident bytes a key", "of them tables", "ns a hit", "forgotten"), growth),
        Table(
            ("contestant", "new keys", "longest hit, us: each round", "second", "99.999 %", "median"),
            [stall_row(results, job) for job in stall_jobs(scale)],
        ),
    ]


def stall_row(results: Results, job: Job) -> tuple[str, ...]:
    longest = " ".join(number(ns / 1e3) for ns in sorted(results.all(job, "longest")))
    others = [results.best(job, figure) for figure in ("second", "p99999", "median")]
    return (job.contestant, f"{job.keys:,}", longest, *(number(ns and ns / 1e3, digits=2) for ns in others))


def targets(results: Results, scale: Scale) -> list[Target]:
    longest = results.best(stall_jobs(scale)[0], "longest")
    keys = f"{scale.keys:,} keys"
    return [
        Target(f"resident bytes a key, {keys}", 40, results.best(Job("grow", OURS, scale.keys), "bytes"), "bytes"),
        Target(f"the longest hit while {keys} arrive", 5, longest and longest / 1e6, "ms"),
    ]


SECTION = Section(
    "memory",
    "5. memory: new keys",
    """Keys are made on the fly, so a contestant that keeps them pays for them. Growth is that of the resident set after
    a collection, divided by the keys; ns a hit includes the making of the key, as the row of the empty method shows.
    Each key has a limit of 1 and all are hit a second time, untimed: those admitted again were forgotten. For stalls
    each hit is timed alone; the empty method in the same loop shows what the system does by itself. A stall of the
    table comes back in every round, one of the system does not: the smallest of the rounds counts.""",
    jobs,
    tables,
    targets,
)
