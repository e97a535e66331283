"""Leases above the limit: how often a fleet asks about one key, what it makes of the limit, and what it tells."""

from __future__ import annotations

from bench.jobs import Job, Results, Scale, largest, smallest
from bench.lease_overload import FLEETS, LIMIT, LOADS, RATE, REAL, REAL_LIMIT, SIMULATED, WINDOWS, simulated
from bench.plot import Curves, curves
from bench.report import Table, Target, number
from bench.sections.section import Section

BUSY = 2_500
"""Requests a second of one node, from which there are many decisions for each round trip."""


def job(name: str) -> Job:
    return Job("overload", name)


def jobs(scale: Scale) -> list[Job]:
    return [job(name) for name in (*SIMULATED, *WINDOWS, *REAL)]


def tables(results: Results, scale: Scale) -> list[Table]:
    head = ("trips/s", "a node", "decisions a trip", "use", "fairness", "told, median", "told, 99 %")
    return [
        Table((f"simulated, {LIMIT}", "first second", *head), [row(results, name, "first") for name in SIMULATED]),
        Table((f"windows of {RATE:,}, from the third second on", *head), [row(results, name) for name in WINDOWS]),
        Table((f"on a server, {REAL_LIMIT}", *head), [row(results, name) for name in REAL]),
    ]


def row(results: Results, name: str, *more: str) -> tuple[str, ...]:
    def figure(which: str, unit: str = "", digits: int = 0) -> str:
        return number(results.best(job(name), which), unit, digits)

    return (
        name, *(figure(each) for each in more), figure("trips"), figure("a node", digits=1),
        figure("per_trip", digits=1), figure("use", " %", 1), figure("fairness", digits=3),
        figure("told", " ms"), figure("told_last", " ms"),
    )  # fmt: skip


def targets(results: Results, scale: Scale) -> list[Target]:
    def each(which: str, names: list[str]) -> list[float | None]:
        return [results.best(job(name), which) for name in names]

    every, windows = list(SIMULATED), list(WINDOWS)
    busy = [name for name, (nodes, load) in SIMULATED.items() if load * RATE / nodes >= BUSY]
    return [
        Target("decisions a trip of a busy node", 50, smallest(each("per_trip", busy)), "", at_least=True),
        Target("trips a second of a node", 50, largest(each("a node", every)), ""),
        Target("trips a second of a key", 2_000, largest(each("trips", every + windows)), ""),
        Target("use of the limit", 97, smallest(each("use", every)), "%", at_least=True),
        Target("use of windows", 97, smallest(each("use", windows)), "%", at_least=True),
        Target("fairness above the limit", 0.95, smallest(each("fairness", above())), "", at_least=True),
        Target("callers that were told too early a time", 0, largest(each("misled", every)), ""),
        Target("violations", 0, largest(each("violations", every + windows)), ""),
    ]


def above() -> list[str]:
    return [name for name, (_, load) in SIMULATED.items() if load > 1]


def plots(results: Results, scale: Scale) -> dict[str, str]:
    def series(which: str) -> dict[str, list[float | None]]:
        return {
            f"{nodes:,} nodes": [results.best(job(simulated(nodes, load)), which) for load in LOADS] for nodes in FLEETS
        }

    panels = [
        Curves("round trips a second", series("trips"), highest=2_000),
        Curves("use of the limit, %", series("use"), highest=100),
        Curves("fairness, Jain's index", series("fairness"), highest=1),
        Curves("told wait, median, ms", series("told"), highest=1_000),
    ]
    ticks = [f"{load:g}x" for load in LOADS]
    return {"leases-overload.svg": curves(f"One key of {LIMIT}, by offered load", ticks, panels)}


SECTION = Section(
    "leases-overload",
    "21. leases: one key above its limit",
    """Equal nodes are asked for a multiple of the limit of one key. Simulated: the gates are the real ones, half for
    threads and half for tasks, and everything follows from a seed; the first second, in which the fleet gets to know
    the key, is apart; of windows, which pay once for the tokens that nodes hold, the first two seconds are. Use is what
    was admitted by what the limit and the demand allow, fairness is Jain's index over what each node admitted. On a
    server: four processes in real time, which this machine's other work disturbs.""",
    jobs,
    tables,
    targets,
    plots,
)
