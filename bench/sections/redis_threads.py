"""Several threads with the state in a server."""

from __future__ import annotations

from bench.jobs import Job, Results, Scale, divided, smallest
from bench.remote import Remote
from bench.remote_measure import THREADS
from bench.remote_ours import ALGORITHMS, BARE, ours
from bench.remote_rivals import called
from bench.report import Table, Target, number
from bench.sections.section import Section
from bench.sharer import cores

NAMES = (BARE, *map(ours, ALGORITHMS), *(each.name for each in called()))


def jobs(scale: Scale) -> list[Job]:
    return [Job("threads", name) for name in NAMES]


def tables(results: Results, scale: Scale) -> list[Table]:
    head = ("decisions/s", "call", *(f"{count} thread{'s' if count > 1 else ''}" for count in THREADS))
    rows = [(name, results.call(name, "threads"), *(rate(results, name, count) for count in THREADS)) for name in NAMES]
    return [Table(head, rows)]


def rate(results: Results, name: str, count: int) -> str:
    return number(divided(1e9, results.best(Job("threads", name), f"ns_{count}")), digits=0)


def targets(results: Results, scale: Scale) -> list[Target]:
    """Every peer beside the algorithm of ours that does the same work, whatever is shared or not among its threads."""
    return [
        Target(
            f"threads: decisions/s of {count}, to every peer of the same algorithm",
            1.0,
            smallest([faster(results, peer, count) for peer in called()]),
            at_least=True,
        )
        for count in THREADS
    ]


def faster(results: Results, peer: Remote, count: int) -> float | None:
    its, own = (results.best(Job("threads", name), f"ns_{count}") for name in (peer.name, ours(peer.same)))
    return divided(its, own)


SECTION = Section(
    "redis-threads",
    "11. redis-threads: the state in a server, several threads",
    f"""One limiter, or one client, for all threads, which have keys of their own and share {cores()} cores with the
    server. They wait at a barrier; the time is that from the first to leave it to the end of the last. Their
    connections are open before. All hits are admitted.""",
    jobs,
    tables,
    targets,
)
