"""One decision after the other with the state in a server: beside an empty script, and beside rivals."""

from __future__ import annotations

from bench.jobs import Job, Results, Scale, divided, largest, smallest
from bench.remote_measure import FLOODED
from bench.remote_ours import ALGORITHMS, BARE, PERIODS, awaited, ours, several
from bench.remote_rivals import one_by_one
from bench.report import Table, Target, number, ratio
from bench.sections.section import Section

OURS = tuple(map(ours, ALGORITHMS))
SEVERAL = tuple(several(count) for count in range(1, 1 + len(PERIODS)))
FLOODS = (ours(ALGORITHMS[0]), awaited(ours(ALGORITHMS[0])))


def job(name: str) -> Job:
    return Job("one by one", name)


def jobs(scale: Scale) -> list[Job]:
    names = (BARE, *OURS, *SEVERAL, *(each.name for each in one_by_one()))
    return [*map(job, names), *(Job("flood", name) for name in FLOODS)]


def tables(results: Results, scale: Scale) -> list[Table]:
    own = [
        (name, results.call(name, "one by one"), rate(results, name), ratio(to(results, name, BARE)))
        for name in (BARE, *OURS)
    ]
    others = [
        (
            rival.name,
            results.call(rival.name, "one by one"),
            rate(results, rival.name),
            rival.same,
            rate(results, ours(rival.same)),
            ratio(to(results, ours(rival.same), rival.name)),
        )
        for rival in one_by_one()
    ]
    trips = [
        (name, rate(results, name), *(number(most(results, name, each), digits=3) for each in ("trips", "scripts")))
        for name in SEVERAL
    ]
    return [
        Table(("one thread", "call", "decisions/s", "of bare"), own),
        Table(("rival", "call", "decisions/s", "headgate", "decisions/s", "faster"), others),
        Table(("one decision", "decisions/s", "round trips", "scripts"), trips),
        Table(
            (f"flood on {FLOODED} keys", "decisions", "round trips", "fewer", "ns"),
            [flood_row(results, name) for name in FLOODS],
        ),
    ]


def rate(results: Results, name: str) -> str:
    return number(divided(1e9, results.best(job(name))), digits=0)


def to(results: Results, name: str, other: str) -> float | None:
    """Decisions a second, to the other's."""
    return divided(results.best(job(other)), results.best(job(name)))


def most(results: Results, name: str, figure: str) -> float | None:
    return max(results.all(job(name), figure), default=None)


def flood_row(results: Results, name: str) -> tuple[str, ...]:
    flood = Job("flood", name)
    counts = (max(results.all(flood, each), default=None) for each in ("hits", "trips"))
    fewer, ns = ratio(results.best(flood, "fewer")), number(results.best(flood))
    return (name, *(number(count, digits=0) for count in counts), fewer, ns)


def targets(results: Results, scale: Scale) -> list[Target]:
    trips = [most(results, name, each) for name in SEVERAL for each in ("trips", "scripts")]
    fewer = smallest([results.best(Job("flood", name), "fewer") for name in FLOODS])
    worst = smallest([to(results, name, BARE) for name in OURS])
    return [
        Target(f"round trips of a decision over 1 to {len(SEVERAL)} limits, the most", 1, largest(trips), "trips"),
        Target("decisions/s of a bucket, of a bare EVALSHA's", 0.85, to(results, OURS[0], BARE), at_least=True),
        Target("decisions/s of the slowest algorithm, of a bare EVALSHA's", 0.85, worst, at_least=True),
        Target("decisions for each round trip in a flood on refused keys", 50, fewer, at_least=True),
    ]


SECTION = Section(
    "redis",
    "9. redis: the state in a server, one decision after the other",
    f"""Every process has a Valkey server of its own on loopback TCP, nothing saved, and one connection of redis-py,
    rivals too; all wait 5 s for an answer at most. Client and server take turns on one core. Each key has a limit of
    100 in an hour and is known before it is hit 50 times, in turn with others; all are admitted by the server, none by
    what stands in for it. The bare EVALSHA is that of an empty script with one key, by a client with headgate's
    settings. Round trips are the reads the server counts. In the flood {FLOODED} keys that have used their limit up are
    hit in turn, as fast as one thread or task can: the first refusal of a key is the server's, those of the second
    after it are the client's own.""",
    jobs,
    tables,
    targets,
)
