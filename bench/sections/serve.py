"""What the decision service costs."""

from __future__ import annotations

from statistics import median

from bench.edge import CHECK, CONNECTIONS, RULES
from bench.jobs import Job, Results, Scale, divided
from bench.report import Table, Target, number, ratio
from bench.sections.section import Section

JOB = Job("edge", CHECK)


def jobs(scale: Scale) -> list[Job]:
    return [JOB]


def middle(results: Results, figure: str) -> float | None:
    """The median of the rounds."""
    found = results.all(JOB, figure)
    return median(found) if found else None


def late(results: Results) -> float | None:
    return divided(middle(results, "p99_ms"), middle(results, "bare_p99_ms"))


def tables(results: Results, scale: Scale) -> list[Table]:
    rows = [
        (
            name,
            number(results.best(JOB, f"{prefix}cpu_us")),
            number(max(results.all(JOB, f"{prefix}rate"), default=None), digits=0),
            number(middle(results, f"{prefix}p99_ms"), digits=2),
        )
        for name, prefix in (("uvicorn, echo", "bare_"), (CHECK, ""))
    ]
    return [
        Table(("one worker", "CPU us", "1/s", "p99 ms at half of peak"), rows),
        Table(
            ("to the echo", "by CPU", "p99", "s from start to ready"),
            [
                (
                    CHECK,
                    ratio(middle(results, "cpu_ratio")),
                    ratio(late(results)),
                    number(middle(results, "ready"), digits=2),
                )
            ],
        ),
    ]


def targets(results: Results, scale: Scale) -> list[Target]:
    return [
        Target("requests by CPU time of a bare echo's, /check", 0.8, middle(results, "cpu_ratio"), at_least=True),
        Target("p99 at half of peak to a bare echo's at the same rate", 2, late(results)),
        Target("seconds from headgate serve to ready", 2, middle(results, "ready")),
    ]


SECTION = Section(
    "serve",
    "27. serve: the decision service",
    f"""`headgate serve` with one worker, shared memory and a policy of {RULES} rules by path, two of which apply,
    beside a bare uvicorn app that answers with two bytes; both on httptools and uvloop. The client sends the request
    of a proxy, seven header fields, over {CONNECTIONS} connections to both in turn; CPU is that of the process that
    serves, and the ratio is the median of neighbouring runs. For the latency, requests come at half of the lower peak,
    at even distances, and their time counts from when they are due.""",
    jobs,
    tables,
    targets,
)
