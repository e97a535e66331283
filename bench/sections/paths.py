"""Allowed and refused, for every algorithm."""

from __future__ import annotations

from bench.jobs import Job, Results, Scale, largest
from bench.ours import ALGORITHMS
from bench.report import Table, Target, number, ratio
from bench.sections.section import Section, timed

BUCKET = "headgate token-bucket"
NOISE = 1.05


def allowed(algorithm: str) -> str:
    return f"headgate {algorithm}"


def refused(algorithm: str) -> str:
    return f"headgate {algorithm}, refused"


def jobs(scale: Scale) -> list[Job]:
    return timed(*(path(algorithm) for algorithm in ALGORITHMS for path in (allowed, refused)))


def tables(results: Results, scale: Scale) -> list[Table]:
    rows = [
        (
            algorithm,
            number(results.ns(allowed(algorithm))),
            number(results.ns(refused(algorithm))),
            ratio(results.ratio(refused(algorithm), allowed(algorithm))),
            ratio(results.ratio(allowed(algorithm), BUCKET)),
            ratio(results.ratio(refused(algorithm), refused("token-bucket"))),
        )
        for algorithm in ALGORITHMS
    ]
    head = ("algorithm", "allowed ns", "refused ns", "refused/allowed", "allowed/bucket", "refused/bucket refused")
    return [Table(head, rows)]


def targets(results: Results, scale: Scale) -> list[Target]:
    no = [results.ratio(refused(each), allowed(each)) for each in ALGORITHMS]
    to_bucket = [results.ratio(allowed(each), BUCKET) for each in ALGORITHMS]
    to_refused = [results.ratio(refused(each), refused("token-bucket")) for each in ALGORITHMS]
    return [
        Target("refused no slower than allowed, 5 % being noise, the worst algorithm", NOISE, largest(no)),
        Target("every algorithm within 2x of the bucket, allowed, the worst", 2, largest(to_bucket)),
        Target("every algorithm within 2x of the bucket, refused, the worst", 2, largest(to_refused)),
    ]


SECTION = Section(
    "paths",
    "3. paths: allowed and refused",
    """The same limit on both paths, 10,000,000 in 52 weeks; on the refused one it was used up by one hit of that cost.
    The log's limit is 1,000,000: allowed are its first 200,000 stamps, which includes the system's handing out of the
    pages they are written to; refused is a full ring, whose oldest stamp alone is looked at.""",
    jobs,
    tables,
    targets,
)
