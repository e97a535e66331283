"""One hot key against a native method that does nothing."""

from __future__ import annotations

from bench.jobs import Job, Results, Scale
from bench.report import Table, Target, number, ratio
from bench.sections.section import Section, timed

HIT, EMPTY, DIRECT = "headgate token-bucket", "empty", "empty, native object"
WHAT = {
    HIT: "a whole decision, a Decision returned",
    EMPTY: "an empty native method, held as `limiter.hit` is",
    DIRECT: "the same method, called on the set",
}


def jobs(scale: Scale) -> list[Job]:
    return timed(*WHAT)


def tables(results: Results, scale: Scale) -> list[Table]:
    rows = [
        (
            what,
            results.call(name),
            number(results.ns(name)),
            ratio(results.ratio(name, EMPTY)),
            ratio(results.ratio(name, DIRECT)),
        )
        for name, what in WHAT.items()
    ]
    return [Table(("", "call", "ns", "to empty", "to direct"), rows)]


def targets(results: Results, scale: Scale) -> list[Target]:
    return [Target("a hit against an empty native method", 3, results.ratio(HIT, EMPTY))]


SECTION = Section(
    "hit",
    "1. hit: one hot key, one limit, allowed",
    """The empty method is `discard` of an empty set, which returns None. It is an attribute of a plain Python object,
    so that `limiter.hit(key)` is the same bytecode for both. A call on the set itself finds its method faster.""",
    jobs,
    tables,
    targets,
)
