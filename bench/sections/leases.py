"""Leases: a fleet's limit at memory speed."""

from __future__ import annotations

from bench.jobs import Job, Results, Scale, divided
from bench.leasing import AWAITED, DEMANDS, FULL_SPEED, paced
from bench.report import Table, Target, number, ratio
from bench.sections.section import Section, timed

BESIDE = {FULL_SPEED: "headgate token-bucket", AWAITED: "async headgate token-bucket"}


def jobs(scale: Scale) -> list[Job]:
    return [*timed(*BESIDE.values()), *(Job("lease", name) for name in (*BESIDE, *map(paced, DEMANDS)))]


def against(results: Results, name: str) -> float | None:
    return divided(results.best(Job("lease", name)), results.ns(BESIDE[name]))


def tables(results: Results, scale: Scale) -> list[Table]:
    speed = [
        (
            name,
            results.call(name, "lease"),
            number(results.best(Job("lease", name))),
            number(results.ns(beside)),
            ratio(against(results, name)),
            number(results.best(Job("lease", name), "per_trip"), digits=0),
        )
        for name, beside in BESIDE.items()
    ]
    trips = [
        (
            paced(demand),
            *(
                number(results.best(Job("lease", paced(demand)), each), digits=0)
                for each in ("hits", "trips", "per_trip")
            ),
        )
        for demand in DEMANDS
    ]
    return [
        Table(("at full speed", "call", "ns", "in memory", "leased/memory", "decisions a trip"), speed),
        Table(("evenly", "decisions", "round trips", "decisions a trip"), trips),
    ]


def targets(results: Results, scale: Scale) -> list[Target]:
    found = [
        Target("a leased hit against one in memory", 3, against(results, FULL_SPEED)),
        Target("an awaited leased hit against one in memory", 2, against(results, AWAITED)),
    ]
    for demand in DEMANDS:
        measured = results.best(Job("lease", paced(demand)), "per_trip")
        found.append(Target(f"decisions a round trip at {demand:,}/s", 50, measured, "", at_least=True))
    return found


SECTION = Section(
    "leases",
    "16. leases: one hot key of a fleet, away from its limit",
    """At full speed one process hits one key as fast as it can, under a limit that it cannot reach, with every lease
    bought on the way; beside it is the same hit in memory. Evenly, requests come at a steady rate from the first one
    of the key on, under a limit of 100,000 a second; the server counts the round trips, and all are admitted.""",
    jobs,
    tables,
    targets,
)
