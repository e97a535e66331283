"""What the decision service costs."""

from __future__ import annotations

from statistics import median

from bench.edge import CHECK, RULES
from bench.edge_grpc import ABOUT, SHOULD
from bench.edge_load import ASKING, CALLING
from bench.edge_nginx import ADDED, NGINX
from bench.jobs import Job, Results, Scale, divided
from bench.report import Table, Target, number, ratio
from bench.sections.section import Section
from bench.web_load import CONNECTIONS

JOB = Job("edge", CHECK)
CALLS = Job("edge grpc", SHOULD)
FILES = Job("edge nginx", NGINX)


def jobs(scale: Scale) -> list[Job]:
    return [JOB, CALLS, FILES]


def middle(results: Results, figure: str, job: Job = JOB) -> float | None:
    """The median of the rounds."""
    found = results.all(job, figure)
    return median(found) if found else None


def fastest(results: Results, job: Job, figure: str) -> str:
    return number(max(results.all(job, figure), default=None), digits=0)


def late(results: Results) -> float | None:
    return divided(middle(results, "p99_ms"), middle(results, "bare_p99_ms"))


def tables(results: Results, scale: Scale) -> list[Table]:
    rows = [
        (
            name,
            number(results.best(JOB, f"{prefix}cpu_us")),
            fastest(results, JOB, f"{prefix}rate"),
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
        Table(
            ("a call of gRPC", "CPU us", "1/s", "by CPU"),
            [
                (
                    name,
                    number(results.best(CALLS, f"{prefix}cpu_us")),
                    fastest(results, CALLS, f"{prefix}rate"),
                    ratio(None if prefix else middle(results, "cpu_ratio", CALLS)),
                )
                for name, prefix in (("grpc.aio, an empty answer", "bare_"), (SHOULD, ""))
            ],
        ),
        Table(
            ("a file of 2 bytes", "CPU us of nginx", "1/s"),
            [
                (name, number(results.best(FILES, f"{name} cpu_us")), fastest(results, FILES, f"{name} rate"))
                for name in ADDED
            ],
        ),
    ]


def targets(results: Results, scale: Scale) -> list[Target]:
    return [
        Target("requests by CPU time of a bare echo's, /check", 0.8, middle(results, "cpu_ratio"), at_least=True),
        Target("p99 at half of peak to a bare echo's at the same rate", 2, late(results)),
        Target("seconds from headgate serve to ready", 2, middle(results, "ready")),
        Target(
            "calls by CPU time of an empty grpc.aio answer's, ShouldRateLimit",
            3,
            middle(results, "cpu_ratio", CALLS),
            at_least=True,
        ),
    ]


SECTION = Section(
    "serve",
    "27. serve: the decision service",
    f"""`headgate serve` with one worker, shared memory and a policy of {RULES} rules by path, two of which apply,
    beside a bare uvicorn app that answers with two bytes; both on httptools and uvloop. {ASKING} sends the request of
    a proxy, seven header fields, over {CONNECTIONS} connections to both in turn; CPU is that of the process that
    serves, and the ratio is the median of neighbouring runs. For the latency, a client of this bench asks at half of
    the lower peak, at even distances, and the time of a request counts from when it is due. ShouldRateLimit is asked
    by {CALLING} with one descriptor of two entries, {ABOUT}, in turn with a server of grpc.aio that answers with no
    bytes; first, the client of grpcio has to see 20 of 25 calls pass. nginx is one process; asked is the service with
    the policy above, on the other core.""",
    jobs,
    tables,
    targets,
)
