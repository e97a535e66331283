"""Load shedding: its cost in front of an app, and services that are asked for five times what they can serve."""

from __future__ import annotations

from bench.flooded import FEW, LOAD, SECONDS
from bench.flooded_services import SERVICES, THREADS
from bench.jobs import Job, Results, Scale, divided
from bench.open_load import SETTLE, TIMEOUT
from bench.report import Table, Target, number, ratio
from bench.sections.section import Section
from bench.sections.web import kept
from bench.shed_apps import ADDED, ALONE
from bench.shed_permits import TURNS
from bench.web_apps import apps

COSTS = (ADDED, ALONE)


def jobs(scale: Scale) -> list[Job]:
    permits = [Job("permit", name) for name in TURNS]
    return [*permits, *(Job("serve", name) for name in COSTS), *(Job("flooded", name) for name in SERVICES)]


def figure(results: Results, name: str, which: str) -> float | None:
    return results.best(Job("flooded", name), which)


def to_semaphore(results: Results, name: str) -> float | None:
    """The ratio of the best run of each."""
    job = Job("permit", name)
    return divided(results.best(job), results.best(job, "semaphore_ns"))


def permit_row(results: Results, name: str) -> tuple[str, ...]:
    job = Job("permit", name)
    spans = (number(results.best(job, each)) for each in ("ns", "semaphore_ns"))
    return results.call(name, "permit"), TURNS[name][1], *spans, ratio(to_semaphore(results, name))


def tables(results: Results, scale: Scale) -> list[Table]:
    cost = [
        (
            name,
            apps()[name].bare,
            *(
                number(max(results.all(Job("serve", name), each), default=None), digits=0)
                for each in ("bare_rate", "rate")
            ),
            ratio(kept(results, name)),
            *(number(results.best(Job("serve", name), each)) for each in ("bare_cpu_us", "cpu_us")),
            ratio(kept(results, name, "cpu_ratio")),
        )
        for name in COSTS
    ]
    rows = [
        (
            name,
            *(number(figure(results, name, each), digits=0) for each in ("peak", "without", "with")),
            ratio(figure(results, name, "goodput")),
            *(number(figure(results, name, each), " ms", 0) for each in ("p99_unloaded", "p99")),
            ratio(figure(results, name, "slowdown")),
            *(number(figure(results, name, each), " %", 1) for each in ("refused", "late")),
        )
        for name in SERVICES
    ]
    rates = ("peak 1/s", "without 1/s", "with 1/s", "with/peak")
    times = ("unloaded p99", "p99", "p99/unloaded", "refused", "late")
    permits = [permit_row(results, name) for name in TURNS]
    return [
        Table(("taken and ended", "beside", "ns of CPU", "beside", "to it"), permits),
        Table(("on a server", "without", "1/s", "with 1/s", "with/without", "us", "with us", "by CPU"), cost),
        Table((f"{LOAD} times the load", *rates, *times), rows),
    ]


def targets(results: Results, scale: Scale) -> list[Target]:
    cost = [
        Target(f"requests/s of {apps()[name].bare}, {name}", 0.95, kept(results, name), at_least=True) for name in COSTS
    ]
    good = [
        Target(f"goodput of the peak, {name}", 0.9, figure(results, name, "goodput"), at_least=True)
        for name in SERVICES
    ]
    slow = [
        Target(f"p99 to unloaded, {name}", each.slowdown, figure(results, name, "slowdown"))
        for name, each in SERVICES.items()
    ]
    permits = [Target(f"{name}, to a BoundedSemaphore", 1, to_semaphore(results, name)) for name in TURNS]
    return [*permits, *cost, *good, *slow]


SECTION = Section(
    "shedding",
    "22. shedding: what a load shedder costs, and what it keeps",
    f"""A permit of an idle shedder that finds its limit, and a `threading.BoundedSemaphore`, are timed in turn in one
    process. The shedder of an app is the one of a policy with an empty section `shed`. Its cost is that of section 15:
    two apps on uvicorn that answer with two bytes, loaded in turn; each tells by a header field whether its request had
    a permit. The services are loaded by a process of its own, on a core of its own, whose requests come by chance at a
    rate, however many are under way; a client leaves after {TIMEOUT:g} s, and a request that was served by then is
    goodput. Each load lasts {SECONDS:g} s, the one on the shedder {2 * SECONDS:g} s, of which the first {SETTLE:.0%} do
    not count. Unloaded is {FEW:g} of what the service can serve; the peak is what clients get that ask as fast as they
    are answered, twice as many as it serves at once. A handler computes for 5 ms of its thread's time, or waits in a
    pool, as for a database: in asyncio, or in {THREADS} threads of gunicorn or gRPC. Late are requests without an
    answer in time. A run counts only if unloaded requests were all served, also with the shedder, and if the client
    kept to its rate.""",
    jobs,
    tables,
    targets,
)
