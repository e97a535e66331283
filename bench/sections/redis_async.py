"""Many tasks at once with the state in a server."""

from __future__ import annotations

from collections.abc import Sequence

from bench.jobs import Job, Results, Scale, divided, smallest
from bench.remote import Remote
from bench.remote_measure import TASKS
from bench.remote_ours import ALGORITHMS, BARE, awaited, ours
from bench.remote_rivals import in_a_crowd
from bench.report import Table, Target, number, ratio
from bench.sections.section import Section

EMPTY, BUCKET = awaited(BARE), awaited(ours(ALGORITHMS[0]))


def jobs(scale: Scale) -> list[Job]:
    own = (EMPTY, *(awaited(ours(algorithm)) for algorithm in ALGORITHMS))
    return [Job("crowd", name) for name in (*own, *(each.name for each in in_a_crowd()))]


def tables(results: Results, scale: Scale) -> list[Table]:
    own = [
        (name, results.call(name, "crowd"), rate(results, name), trips(results, name), ratio(to(results, name, EMPTY)))
        for name in (EMPTY, *(awaited(ours(algorithm)) for algorithm in ALGORITHMS))
    ]
    others = [
        (
            rival.name,
            results.call(rival.name, "crowd"),
            rate(results, rival.name),
            trips(results, rival.name),
            rival.same,
            ratio(to(results, awaited(ours(rival.same)), rival.name)),
        )
        for rival in in_a_crowd()
    ]
    return [
        Table((f"{TASKS} tasks", "call", "decisions/s", "round trips", "to bare"), own),
        Table(("rival", "call", "decisions/s", "round trips", "headgate", "faster"), others),
    ]


def rate(results: Results, name: str) -> str:
    return number(divided(1e9, results.best(Job("crowd", name))), digits=0)


def trips(results: Results, name: str) -> str:
    return number(results.best(Job("crowd", name), "trips"), digits=3)


def to(results: Results, name: str, other: str) -> float | None:
    """Decisions a second, to the other's."""
    return divided(results.best(Job("crowd", other)), results.best(Job("crowd", name)))


def least(results: Results, name: str, peers: Sequence[Remote]) -> float | None:
    return smallest([to(results, name, peer.name) for peer in peers])


def targets(results: Results, scale: Scale) -> list[Target]:
    same = [
        least(results, awaited(ours(algorithm)), [each for each in in_a_crowd() if each.same == algorithm])
        for algorithm in ALGORITHMS
    ]
    best = least(results, BUCKET, in_a_crowd())
    return [
        Target(f"decisions/s of {TASKS} tasks, a bucket, to the best of all peers", 5, best, at_least=True),
        Target(
            f"decisions/s of {TASKS} tasks to the best peer of the same algorithm, the least",
            5,
            smallest(same),
            at_least=True,
        ),
    ]


SECTION = Section(
    "redis-async",
    f"10. redis-async: the state in a server, {TASKS} tasks at once",
    f"""{TASKS} tasks on one event loop, each with a key of its own, each awaiting one hit after the other: all are
    admitted. The time is that from before the tasks are made to the end of the last. Rivals have a pool with more
    connections than there are tasks, all of them open before: that is redis-py's fastest way. limits takes coredis
    unless it is told to take redis-py; coredis sends what is asked at once over one connection. Round trips are the
    reads the server counts, for each decision.""",
    jobs,
    tables,
    targets,
)
