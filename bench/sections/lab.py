"""What a line of a log takes in the lab."""

from __future__ import annotations

from bench.jobs import Job, Results, Scale, divided
from bench.lab import ADVISE, BARE, FLOODED, POLICY, REPLAY, RUNS
from bench.report import Table, Target, number, ratio
from bench.sections.section import Section


def jobs(scale: Scale) -> list[Job]:
    return [Job("lab", name, scale.keys) for name in RUNS]


def figure(results: Results, scale: Scale, name: str, figure: str = "us") -> float | None:
    return results.best(Job("lab", name, scale.keys), figure)


def tables(results: Results, scale: Scale) -> list[Table]:
    bare = figure(results, scale, BARE)
    rows = [
        (
            name,
            number(figure(results, scale, name), digits=2),
            ratio(divided(figure(results, scale, name), bare)),
            number(figure(results, scale, name, "mb"), digits=0),
        )
        for name in RUNS
    ]
    return [Table(("of a log", "CPU us a line", "to a bare loop", "MB more"), rows)]


def targets(results: Results, scale: Scale) -> list[Target]:
    replay, flooded, bare = (figure(results, scale, name) for name in (REPLAY, FLOODED, BARE))
    return [
        Target("replay with every figure, us a line", 8, replay),
        Target("replay with every figure, to a loop that reads and matches", 10, divided(replay, bare)),
        Target("the same with one request in ten refused", 10, divided(flooded, bare)),
        Target("a policy of 20 rules, us a line", 14, figure(results, scale, POLICY)),
        Target("advise with nine rates, us a line", 10, figure(results, scale, ADVISE)),
        Target("memory of a replay with 10,000 clients, MB", 100, figure(results, scale, REPLAY, "mb")),
        Target("a report, KB", 400, figure(results, scale, REPLAY, "kb")),
    ]


SECTION = Section(
    "lab",
    "25. the lab: CPU of a line of a log",
    """Combined lines of 10,000 clients of which few send most; one request in a hundred is refused, or one in ten. The
    bare loop reads each line and matches
    the needed fields by one regular expression. CPU time of one core; memory is the peak of the process beyond its peak
    after the first 20,000 lines.""",
    jobs,
    tables,
    targets,
)
