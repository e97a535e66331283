"""Several limits in one decision."""

from __future__ import annotations

from bench.jobs import Job, Results, Scale
from bench.report import Table, Target, number, ratio
from bench.sections.section import Section, timed

ONE, THREE = "headgate token-bucket", "headgate three limits"


def jobs(scale: Scale) -> list[Job]:
    return timed(ONE, THREE)


def tables(results: Results, scale: Scale) -> list[Table]:
    rows = [(name, number(results.ns(name)), ratio(results.ratio(name, ONE))) for name in (ONE, THREE)]
    return [Table(("", "ns", "to one"), rows)]


def targets(results: Results, scale: Scale) -> list[Target]:
    return [Target("three limits in one decision against one", 4, results.ratio(THREE, ONE))]


SECTION = Section(
    "several",
    "4. several: three limits in one decision",
    """Three token buckets over 50, 51 and 52 weeks, charged all or none, one Decision with three verdicts.""",
    jobs,
    tables,
    targets,
)
