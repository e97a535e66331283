"""The same algorithm in other libraries."""

from __future__ import annotations

from bench.jobs import Job, Results, Scale, smallest
from bench.report import Table, Target, number, ratio
from bench.rivals import ANSWERS, SAME, library
from bench.sections.section import Section, timed


def ours(rival: str) -> str:
    return f"headgate {SAME[rival]}"


def jobs(scale: Scale) -> list[Job]:
    return timed(*dict.fromkeys(map(ours, SAME)), *SAME)


def tables(results: Results, scale: Scale) -> list[Table]:
    rows = [
        (
            rival,
            results.call(rival),
            ANSWERS[library(rival)],
            number(results.ns(rival)),
            SAME[rival],
            number(results.ns(ours(rival))),
            ratio(results.ratio(rival, ours(rival))),
        )
        for rival in SAME
    ]
    return [Table(("rival", "call", "answer", "ns", "headgate", "ns", "faster"), rows)]


def targets(results: Results, scale: Scale) -> list[Target]:
    return [
        Target(
            f"faster than {name}, the least of its algorithms",
            30,
            smallest([results.ratio(rival, ours(rival)) for rival in SAME if library(rival) == name]),
            at_least=True,
        )
        for name in ("limits", "throttled-py", "pyrate-limiter")
    ]


SECTION = Section(
    "rivals",
    "2. rivals: the same algorithm, one hot key, allowed, in memory",
    """Headgate returns a Decision with what remains, when to retry and when all is back; a bool says none of that.
    throttled-py's sliding_window is the two-counter window. Logs are timed over the first 2,000 hits of a key, ours
    too: short logs favour rivals whose cost grows with each stamp. pyrate-limiter keeps a log for its FixedWindow as
    well, and its limiter has one bucket whatever the key.""",
    jobs,
    tables,
    targets,
)
