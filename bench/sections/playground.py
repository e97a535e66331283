"""What the playground reaches in a browser."""

from __future__ import annotations

from bench.jobs import Job, Results, Scale
from bench.playground import CROWDED
from bench.report import Table, Target, number
from bench.sections.section import Section

JOB = Job("page", CROWDED)


def jobs(scale: Scale) -> list[Job]:
    return [JOB]


def tables(results: Results, scale: Scale) -> list[Table]:
    figures = (("frames", 0), ("worst", 0), ("share", 3), ("first", 2), ("dot", 0))
    row = (CROWDED, *(number(results.best(JOB, figure), digits=digits) for figure, digits in figures))
    head = ("traffic", "frames/s, median", "worst second", "CPU of the server", "s to the first lane", "ms to a dot")
    return [Table(head, [row])]


def targets(results: Results, scale: Scale) -> list[Target]:
    frames, worst = results.best(JOB, "frames"), results.best(JOB, "worst")
    return [
        Target("time of a frame at the median, ms", 1000 / 30, None if not frames else 1000 / frames),
        Target("time of a frame in the worst second, ms", 1000 / 20, None if not worst else 1000 / worst),
        Target("share of a core that the server takes", 0.1, results.best(JOB, "share")),
        Target("seconds from start to the first lane", 1, results.best(JOB, "first")),
        Target("milliseconds from a click to its dot, the slowest of 20", 100, results.best(JOB, "dot")),
    ]


SECTION = Section(
    "playground",
    "26. the playground: frames and answers in a browser",
    """`headgate playground` and a headless browser on the same machine, at 1280 x 800. Needs playwright and a browser,
    which are not installed with the rivals: without them the section is left out.""",
    jobs,
    tables,
    targets,
)
