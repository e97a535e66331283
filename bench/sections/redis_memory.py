"""Bytes a key in the server."""

from __future__ import annotations

from collections.abc import Callable

from bench.jobs import Job, Results, Scale, divided
from bench.remote import AMOUNT
from bench.remote_ours import ALGORITHMS, ours
from bench.remote_rivals import one_by_one
from bench.report import Table, Target, number, ratio
from bench.sections.section import Section

LOG = "sliding-log"


def once(name: str, scale: Scale) -> Job:
    return Job("weigh", name, scale.rival_keys // 5)


def full(name: str, scale: Scale) -> Job:
    return Job("weigh full", name, scale.rival_keys // 200)


def names(algorithm: str) -> list[str]:
    return [ours(algorithm), *(each.name for each in one_by_one() if each.same == algorithm)]


def jobs(scale: Scale) -> list[Job]:
    every = [once(name, scale) for algorithm in ALGORITHMS for name in names(algorithm)]
    return [*every, *(full(name, scale) for name in names(LOG))]


def tables(results: Results, scale: Scale) -> list[Table]:
    hit_once = [row(results, scale, once, algorithm, name) for algorithm in ALGORITHMS for name in names(algorithm)]
    used_up = [row(results, scale, full, LOG, name) for name in names(LOG)]
    rest = ("algorithm", "keys", "bytes a key", "to the best peer", "keys in the server", "of them expire")
    return [Table(("hit once", *rest), hit_once), Table((f"a log of {AMOUNT}", *rest), used_up)]


def row(
    results: Results, scale: Scale, weighed: Callable[[str, Scale], Job], algorithm: str, name: str
) -> tuple[str, ...]:
    job = weighed(name, scale)
    held, expire = (results.best(job, figure) for figure in ("held", "expire"))
    return (
        name,
        algorithm,
        f"{job.keys:,}",
        number(results.best(job, "bytes")),
        ratio(divided(results.best(job, "bytes"), best_peer(results, scale, weighed, algorithm))),
        number(held, digits=2),
        number(expire, digits=2),
    )


def best_peer(results: Results, scale: Scale, weighed: Callable[[str, Scale], Job], algorithm: str) -> float | None:
    found = [results.best(weighed(name, scale), "bytes") for name in names(algorithm)[1:]]
    return min((each for each in found if each is not None), default=None)


def targets(results: Results, scale: Scale) -> list[Target]:
    def to_best(weighed: Callable[[str, Scale], Job], algorithm: str) -> float | None:
        own = results.best(weighed(ours(algorithm), scale), "bytes")
        return divided(own, best_peer(results, scale, weighed, algorithm))

    return [
        *(
            Target(f"server bytes a key to the best peer's, {algorithm}", 1.2, to_best(once, algorithm))
            for algorithm in ALGORITHMS
        ),
        Target(f"server bytes of a log of {AMOUNT} to the best peer's", 0.5, to_best(full, LOG)),
    ]


SECTION = Section(
    "redis-memory",
    "13. redis-memory: bytes a key in the server",
    f"""Growth of the memory the server has allocated, tables and names of the keys included, divided by the keys, which
    are `user:100000` and so on, each with a limit of 100 in an hour. Names are what a library makes of them;
    pyrate-limiter takes them as they are, and its sets never expire. A log is full after {AMOUNT} hits, one after the
    other.""",
    jobs,
    tables,
    targets,
)
