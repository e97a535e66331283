"""Awaited hits."""

from __future__ import annotations

from bench.jobs import Job, Results, Scale
from bench.report import Table, Target, number, ratio
from bench.rivals import SAME_ASYNC
from bench.sections.section import Section, timed

HIT, EMPTY = "async headgate token-bucket", "async empty"


def ours(rival: str) -> str:
    return f"async headgate {SAME_ASYNC[rival]}"


def jobs(scale: Scale) -> list[Job]:
    return timed(EMPTY, HIT, *dict.fromkeys(map(ours, SAME_ASYNC)), *SAME_ASYNC)


def tables(results: Results, scale: Scale) -> list[Table]:
    own = [
        (name, results.call(name), number(results.ns(name)), ratio(results.ratio(name, EMPTY))) for name in (EMPTY, HIT)
    ]
    others = [
        (
            rival,
            results.call(rival),
            number(results.ns(rival)),
            SAME_ASYNC[rival],
            number(results.ns(ours(rival))),
            ratio(results.ratio(rival, ours(rival))),
        )
        for rival in SAME_ASYNC
    ]
    return [
        Table(("", "call", "ns", "to empty"), own),
        Table(("rival", "call", "ns", "headgate", "ns", "faster"), others),
    ]


def targets(results: Results, scale: Scale) -> list[Target]:
    return [Target("an awaited hit against an empty coroutine", 3, results.ratio(HIT, EMPTY))]


SECTION = Section(
    "async",
    "6. async: awaited hits in memory, one hot key, allowed",
    """All awaits of a run happen in one task and none of them has to wait, so the event loop is not on the path.
    aiolimiter has no keys and answers nothing: it waits.""",
    jobs,
    tables,
    targets,
)
