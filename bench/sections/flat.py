"""The cost of a hit as keys grow."""

from __future__ import annotations

from bench.jobs import Job, Results, Scale, divided
from bench.report import Table, Target, number, ratio
from bench.sections.section import Section

HIT, EMPTY = "headgate token-bucket", "empty"
COUNTS = (1_000, 100_000, 1_000_000)


def jobs(scale: Scale) -> list[Job]:
    return [Job("spread", name, keys) for keys in counts(scale) for name in (HIT, EMPTY)]


def counts(scale: Scale) -> list[int]:
    return [keys for keys in COUNTS if keys <= scale.keys]


def tables(results: Results, scale: Scale) -> list[Table]:
    rows = []
    for keys in counts(scale):
        hit, empty = (results.best(Job("spread", name, keys)) for name in (HIT, EMPTY))
        least_hit, least_empty = (results.best(Job("spread", name, COUNTS[0])) for name in (HIT, EMPTY))
        rows.append(
            (
                f"{keys:,}",
                number(hit),
                number(empty),
                ratio(divided(hit, least_hit)),
                ratio(divided(empty, least_empty)),
                ratio(divided(hit, empty)),
            )
        )
    return [Table(("keys", "hit ns", "empty ns", "hit/hit at 1,000", "empty/empty at 1,000", "hit/empty"), rows)]


def targets(results: Results, scale: Scale) -> list[Target]:
    return []


SECTION = Section(
    "flat",
    "7. flat: hits on random keys among many that exist",
    """300,000 keys chosen at random among those that exist, in a loop `for key in picks`. A key of many is not in the
    cache: neither the str, which the empty call has to touch too, nor its slot in the table. What the algorithm adds
    stays flat; what memory adds is in both columns.""",
    jobs,
    tables,
    targets,
)
