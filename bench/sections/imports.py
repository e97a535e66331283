"""What `import headgate` takes."""

from __future__ import annotations

from bench.imports import CODE, EMPTY, FRESH, PLAIN
from bench.jobs import Job, Results, Scale, divided
from bench.report import Table, Target, number, ratio
from bench.sections.section import Section

RIVAL = "limits"


def jobs(scale: Scale) -> list[Job]:
    return [Job("import", name) for name in CODE]


def taken(results: Results, name: str) -> float | None:
    """Milliseconds of CPU beyond those of an empty interpreter."""
    whole, empty = (results.best(Job("import", each), "ms") for each in (name, EMPTY))
    return None if whole is None or empty is None else whole - empty


def tables(results: Results, scale: Scale) -> list[Table]:
    rows = [
        (
            results.call(name, "import"),
            number(results.best(Job("import", name), "modules"), digits=0),
            number(taken(results, name)),
            ratio(divided(taken(results, name), taken(results, RIVAL))),
        )
        for name in CODE
    ]
    return [Table(("import", "modules", "CPU ms beyond empty", f"to {RIVAL}"), rows)]


def targets(results: Results, scale: Scale) -> list[Target]:
    return [
        Target(f"{name}, to `import {RIVAL}`", 0.5, divided(taken(results, name), taken(results, RIVAL)))
        for name in ("headgate", PLAIN)
    ]


SECTION = Section(
    "imports",
    "20. import: from nothing to the first answer",
    f"""CPU time of new interpreters, from start to end: the least of {FRESH}, less the least of those that import
    nothing. Bytecode is compiled already. Modules are those that are loaded at the end, with the ones that every
    interpreter loads.""",
    jobs,
    tables,
    targets,
)
