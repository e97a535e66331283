"""What is in flight: one in, and out again."""

from __future__ import annotations

from bench.flight import REFUSED, ROOM
from bench.flight_holders import (
    ASYNCIO,
    PROCESSES,
    REDIS,
    RELEASE,
    RIVALS,
    SELF_AWAITED,
    SHARED_RELEASE,
    SHARED_WITH,
    THREADING,
    TTL,
    WITH,
)
from bench.jobs import Job, Results, Scale, divided, largest
from bench.remote_measure import TASKS
from bench.remote_ours import ALGORITHMS, awaited, ours
from bench.report import Table, Target, number, ratio
from bench.sections.section import Section
from bench.sharing import alone

BUCKET = ours(ALGORITHMS[0])
HIT, SHARED_HIT = Job("time", BUCKET), Job("time", alone("shared", "token-bucket"))
AWAITED_HIT = Job("time", awaited(BUCKET))
REDIS_HIT, AWAITED_REDIS_HIT = (Job("one by one", name) for name in (BUCKET, awaited(BUCKET)))
CROWD_HIT = Job("crowd", awaited(BUCKET))
HOMES = (
    ("threads of a process", HIT, (WITH, RELEASE, THREADING)),
    ("tasks of a process", AWAITED_HIT, (awaited(WITH), awaited(ASYNCIO))),
    ("processes of a host", SHARED_HIT, (SHARED_WITH, SHARED_RELEASE, PROCESSES)),
)
CALLED = (REDIS, *RIVALS)
AWAITED = (*map(awaited, CALLED), SELF_AWAITED)


def turn(name: str) -> Job:
    return Job("turn", name)


def crowd(name: str) -> Job:
    return Job("turn crowd", name)


def jobs(scale: Scale) -> list[Job]:
    near = [each for _, hit, names in HOMES for each in (hit, *map(turn, names))]
    one_by_one = [REDIS_HIT, *map(turn, CALLED), AWAITED_REDIS_HIT, *map(turn, AWAITED)]
    return [*near, *one_by_one, CROWD_HIT, *map(crowd, AWAITED)]


def tables(results: Results, scale: Scale) -> list[Table]:
    near = [
        Table(
            (home, "in and out", "ns", "to a hit", "to headgate's"),
            [near_row(results, name, hit, names[0]) for name in names],
        )
        for home, hit, names in HOMES
    ]
    called = [far_row(results, turn(name), REDIS_HIT, REDIS) for name in CALLED]
    one_by_one = [far_row(results, turn(name), AWAITED_REDIS_HIT, AWAITED[0]) for name in AWAITED]
    at_once = [far_row(results, crowd(name), CROWD_HIT, AWAITED[0]) for name in AWAITED]
    head = ("in and out", "turns/s", "to a hit", "round trips", "to headgate's")
    return [
        *near,
        Table(("hosts, one by one", *head), [*called, *one_by_one]),
        Table((f"hosts, {TASKS} tasks at once", *head), at_once),
    ]


def near_row(results: Results, name: str, hit: Job, own: str) -> tuple[str, ...]:
    ns = results.best(turn(name))
    beside = ratio(divided(ns, results.best(turn(own))))
    return name, results.call(name, "turn"), number(ns), ratio(divided(ns, results.best(hit))), beside


def far_row(results: Results, job: Job, hit: Job, own: str) -> tuple[str, ...]:
    ns = results.best(job)
    return (
        job.contestant,
        results.call(job.contestant, job.kind),
        number(divided(1e9, ns), digits=0),
        ratio(divided(ns, results.best(hit))),
        number(trips(results, job), digits=2),
        ratio(divided(ns, results.best(job._replace(contestant=own)))),
    )


def trips(results: Results, job: Job) -> float | None:
    return max(results.all(job, "trips"), default=None)


def targets(results: Results, scale: Scale) -> list[Target]:
    def to_hit(name: str, hit: Job) -> float | None:
        return divided(results.best(turn(name)), results.best(hit))

    far = largest([trips(results, turn(name)) for name in (REDIS, awaited(REDIS))])
    return [
        Target("a permit in memory, taken and ended, against a hit", 4, to_hit(WITH, HIT)),
        Target("the same by release()", 4, to_hit(RELEASE, HIT)),
        Target("a permit in shared memory, taken and ended, against a hit there", 6, to_hit(SHARED_WITH, SHARED_HIT)),
        Target("the same by release()", 6, to_hit(SHARED_RELEASE, SHARED_HIT)),
        Target("round trips of a permit at a server, taken and ended", 2, far, "trips"),
        Target(f"the same with {TASKS} tasks at once", 2, trips(results, crowd(awaited(REDIS))), "trips"),
    ]


SECTION = Section(
    "flight",
    "19. flight: what is in flight, in and out again",
    f"""A turn takes one of {ROOM} and gives it back; nothing is done in between and nobody else is there. Each
    contestant has to let {ROOM} in, refuse the next {REFUSED} and be empty again, before it is timed and after. A hit
    is that of a token bucket in the same store, asked in the same way; the last column is the time of a turn to that of
    headgate's first line. A lock of redis-py has room for one. The semaphores of the standard library have one count
    and no keys, and that of multiprocessing loses for ever what a killed process held. What the recipes with Redis hold
    is free after {TTL} s, whether its holder lives or not; what self-limiters holds, once nobody has used the key for
    so long; headgate's permits are renewed. The fair semaphore of Redis in Action may let too many in where several ask
    at once: the book adds a lock for that, which is left out here. self-limiters begins each command with a PING, and
    refuses after a whole second at the earliest. Headgate's turns have to be two scripts each, by the server's count.
    One by one, client and server take turns on one core; tasks at once have keys of their own.""",
    jobs,
    tables,
    targets,
)
