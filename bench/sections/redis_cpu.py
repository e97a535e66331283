"""What a decision costs the server."""

from __future__ import annotations

from statistics import median

from bench.jobs import Job, Results, Scale, divided
from bench.remote_ours import ALGORITHMS, BARE, ours
from bench.remote_rivals import one_by_one
from bench.report import Table, Target, number, ratio
from bench.sections.section import Section

BOUNDS = {"fixed-window": 1.25}
"""Of the algorithms that are not to be as cheap as the best atomic peer's: ours says more than a count."""


def jobs(scale: Scale) -> list[Job]:
    names = (BARE, *map(ours, ALGORITHMS), *(each.name for each in one_by_one()))
    return [Job("one by one", name) for name in names]


def tables(results: Results, scale: Scale) -> list[Table]:
    rows = [row(results, BARE, "", "", None)]
    for algorithm in ALGORITHMS:
        best = best_atomic(results, algorithm)
        rows.append(row(results, ours(algorithm), algorithm, "yes", best))
        rows.extend(
            row(results, peer.name, algorithm, "yes" if peer.atomic else "no", best)
            for peer in one_by_one()
            if peer.same == algorithm
        )
    head = ("contestant", "algorithm", "atomic", "server us", "of them in the command", "to the best atomic peer")
    return [Table(head, rows)]


def row(results: Results, name: str, algorithm: str, atomic: str, best: float | None) -> tuple[str, ...]:
    cpu, command = (middle(results, name, figure) for figure in ("cpu_us", "command_us"))
    return name, algorithm, atomic, number(cpu, digits=2), number(command, digits=2), ratio(divided(cpu, best))


def middle(results: Results, name: str, figure: str = "cpu_us") -> float | None:
    """Time on a processor is noisy both ways: the median of the rounds counts, each the median of its runs."""
    found = results.all(Job("one by one", name), figure)
    return median(found) if found else None


def best_atomic(results: Results, algorithm: str) -> float | None:
    peers = [each.name for each in one_by_one() if each.same == algorithm and each.atomic]
    return min((found for name in peers if (found := middle(results, name)) is not None), default=None)


def targets(results: Results, scale: Scale) -> list[Target]:
    return [
        Target(
            f"server CPU of a decision to the best atomic peer's, {algorithm}",
            BOUNDS.get(algorithm, 1),
            divided(middle(results, ours(algorithm)), best_atomic(results, algorithm)),
        )
        for algorithm in ALGORITHMS
    ]


SECTION = Section(
    "redis-cpu",
    "12. redis-cpu: what a decision costs the server",
    """Processor time of the server, user and system, by its own account, for each decision of the runs of section 9;
    most of it is the reading of a question and the writing of an answer, as the empty script shows. The rest is the
    time inside the command. Atomic is a decision that is one script or one command: throttled-py's fixed_window is an
    INCRBY and then, for a new key, an EXPIRE. pyrate-limiter keeps a log for its FixedWindow, and takes the time of day
    from the client, as limits does for its moving-window. fastapi-redis-sdk is awaited in one task.""",
    jobs,
    tables,
    targets,
)
