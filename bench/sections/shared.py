"""The store that processes share: beside memory, under four processes at once, and beside what else does that."""

from __future__ import annotations

from bench.jobs import Job, Results, Scale, divided
from bench.measure import STATM
from bench.report import Table, Target, number, ratio
from bench.sections.section import Section, timed
from bench.sharer import cores
from bench.sharing import ALGORITHMS, STORES, alone, roomy, together
from bench.sharing_rivals import RIVALS
from bench.together import PROCESSES

BUCKET = ALGORITHMS[0]
SAME = 1.05
COUNTED = ("hits", "amount", "admitted", "degraded")
TOGETHER = (*map(together, ALGORITHMS), *RIVALS)


def jobs(scale: Scale) -> list[Job]:
    singles = timed(*(alone(store, algorithm) for algorithm in ALGORITHMS for store in STORES))
    return [*singles, *(Job("together", name) for name in TOGETHER), *growth_jobs(scale)]


def growth_jobs(scale: Scale) -> list[Job]:
    return [Job("grow", roomy(store, scale.keys), scale.keys) for store in STORES] if STATM.exists() else []


def tables(results: Results, scale: Scale) -> list[Table]:
    single = [single_row(results, algorithm) for algorithm in ALGORITHMS]
    many = [together_row(results, name) for name in TOGETHER]
    return [
        Table(("one process", "memory ns", "shared ns", "shared/memory"), single),
        Table(
            (f"{PROCESSES} processes", "call", "decisions/s", "slower", "hits", "limit", "admitted", "degraded"), many
        ),
        Table(
            ("new keys", "table bytes a key", "resident bytes a key", "ns a hit", "forgotten"),
            [growth_row(results, job) for job in growth_jobs(scale)],
        ),
    ]


def single_row(results: Results, algorithm: str) -> tuple[str, ...]:
    memory, shared = (alone(store, algorithm) for store in STORES)
    return (
        algorithm,
        number(results.ns(memory)),
        number(results.ns(shared)),
        ratio(results.ratio(shared, memory)),
    )


def together_row(results: Results, name: str) -> tuple[str, ...]:
    ns, fastest = (results.best(Job("together", each)) for each in (name, together(BUCKET)))
    return (
        name,
        results.call(name, "together"),
        number(divided(1e9, ns), digits=0),
        ratio(divided(ns, fastest)),
        *counted(results, name),
    )


def counted(results: Results, name: str) -> tuple[str, ...]:
    """The counts of the round in which most was admitted that should not be, or least that should."""
    rounds = zip(*(results.all(Job("together", name), each) for each in COUNTED), strict=True)
    worst = max(rounds, key=lambda each: abs(each[2] - each[1]), default=(None,) * len(COUNTED))
    return tuple(number(each, digits=0) for each in worst)


def growth_row(results: Results, job: Job) -> tuple[str, ...]:
    found = [results.best(job, figure) for figure in ("table_bytes", "bytes", "ns")]
    return (job.contestant, *map(number, found), number(results.best(job, "forgotten"), digits=0))


def targets(results: Results, scale: Scale) -> list[Target]:
    memory, shared = (alone(store, BUCKET) for store in STORES)
    in_memory, in_shared = (
        results.best(Job("grow", roomy(store, scale.keys), scale.keys), "table_bytes") for store in STORES
    )
    rate = divided(1e3, results.best(Job("together", together(BUCKET))))
    at_once = f"{PROCESSES} processes on one key, {cores()} cores, exact, decisions a second"
    return [
        Target("a hit on the shared store against one in memory", 1.6, results.ratio(shared, memory)),
        Target(at_once, 10, rate, "million", at_least=True),
        Target("bytes a key, shared against memory, 5 % being noise", SAME, divided(in_shared, in_memory)),
    ]


SECTION = Section(
    "shared",
    "8. shared: one limit for the processes of a host",
    f"""The store is a directory in /dev/shm where there is one. For one process both stores are made for 1,000 keys and
    a log has its first 2,000 hits. {PROCESSES} processes on {cores()} cores wait at a barrier and hit one key; the time
    is that from the first to leave the barrier to the end of the last, and each decision is looked at and counted. Five
    hits in six fit the limit, which is one of 4 weeks: exactly those have to be admitted, in total. An answer is
    degraded if it had to be given without a process that was kept from its core: none is on a quiet machine, and none
    ever of a bucket that exists. TokenBucket of traffik works under locks that it calls local to a process, so what it
    admits is only shown. The buckets of pyrate-limiter are asked directly: its limiter refuses whenever another process
    holds its lock. Rivals are slower and take fewer hits. Bytes a key are those of a full table, by its keys.""",
    jobs,
    tables,
    targets,
)
