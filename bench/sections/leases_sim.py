"""Leases of a fleet, simulated: its bound, what it makes of its limit, and what it asks for."""

from __future__ import annotations

from bench.jobs import Job, Results, Scale
from bench.lease_world import BUCKET, FLEETS, HOT, SKEWED, SLIDING, SLIDING_STORMS, STORMS, WINDOW
from bench.report import Table, Target, number
from bench.sections.section import Section

TRIALS = STORMS, SLIDING_STORMS


def job(name: str) -> Job:
    return Job("simulate", name)


def jobs(scale: Scale) -> list[Job]:
    return [job(name) for name in (*TRIALS, *FLEETS)]


def tables(results: Results, scale: Scale) -> list[Table]:
    storms = [
        (name, *(number(results.best(job(name), each), digits=0) for each in ("worlds", "violations")))
        for name in TRIALS
    ]
    head = ("fleet", "nodes", "limit", "requests", "of exact", "fairness", "decisions a trip", "violations")
    return [
        Table(("in trouble", "worlds", "violations"), storms),
        Table(head, [fleet_row(results, name) for name in FLEETS]),
    ]


def fleet_row(results: Results, name: str) -> tuple[str, ...]:
    return (
        name,
        f"{FLEETS[name].nodes:,}",
        FLEETS[name].limits,
        number(results.best(job(name), "asked"), digits=0),
        number(results.best(job(name), "utilisation"), " %"),
        number(results.best(job(name), "fairness"), digits=3),
        number(results.best(job(name), "per_trip")),
        number(results.best(job(name), "violations"), digits=0),
    )


def targets(results: Results, scale: Scale) -> list[Target]:
    least = {BUCKET: 95, WINDOW: 95, SLIDING: 95, SKEWED: 90}
    return [
        *(
            Target(f"violations in {scale.worlds:,} worlds, {name}", 0, results.best(job(name), "violations"), "")
            for name in TRIALS
        ),
        *(
            Target(f"{name}, of what exact admits", part, results.best(job(name), "utilisation"), "%", at_least=True)
            for name, part in least.items()
        ),
        Target(f"{BUCKET}, fairness", 0.9, results.best(job(BUCKET), "fairness"), "", at_least=True),
        Target(f"{HOT}, decisions a round trip", 50, results.best(job(HOT), "per_trip"), "", at_least=True),
    ]


SECTION = Section(
    "leases-sim",
    "18. leases: fleets in virtual time",
    """The gates are the real ones, the server runs the reference steps, and everything follows from a seed. In trouble:
    crashes, partitions, losses, delays, clocks that disagree, a server that forgets, leases of any size; each world is
    checked for more than burst + rate * (t + validity) in any interval t, for more than the limit in any fixed window,
    for more than a sliding window admits in t + validity, and for units that were lost or doubled. Fleets: the worse of
    threads and tasks. Of exact is what a fleet admits by what it admits where every request is a round trip; fairness
    is Jain's index.""",
    jobs,
    tables,
    targets,
)
