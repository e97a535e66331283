"""Waiting for a yes, and leaving at a constant rate, in real time."""

from __future__ import annotations

from bench.crowd import ideal
from bench.flow import IN_A_BIN
from bench.jobs import Job, Results, Scale, divided, largest
from bench.plot import bars
from bench.report import Table, Target, number, ratio
from bench.sections.section import Section, timed
from bench.shapes import ASYNC_SHAPER, BARE_LOOP, BARE_THREAD, QUEUE, RATE, SHAPER
from bench.waiters import BUCKET, BURST, waiters
from bench.waiters import RATE as A_SECOND

ACQUIRED = {
    "headgate acquire": "headgate token-bucket",
    "async headgate acquire": "async headgate token-bucket",
}
NAMES = tuple(each.name for each in waiters())
SHAPES = (SHAPER, BARE_THREAD, ASYNC_SHAPER, BARE_LOOP)
WITHIN = 4
LATEST_MS = {SHAPER: 0.3, ASYNC_SHAPER: 1.5}


def jobs(scale: Scale) -> list[Job]:
    waits = [Job("wait", name) for name in NAMES]
    return [*timed(*ACQUIRED, *ACQUIRED.values()), *waits, *(Job("shape", name) for name in SHAPES)]


def tables(results: Results, scale: Scale) -> list[Table]:
    costs = [
        (results.call(name), number(results.ns(name)), results.call(hit), ratio(results.ratio(name, hit)))
        for name, hit in ACQUIRED.items()
    ]
    head = (f"{scale.waiters:,} waiters", "call", "seconds", "beyond ideal", "timers", "CPU ms", "overtaken", "early")
    flows = (
        "leaving",
        "rate/s",
        "late us, p50",
        "p99",
        "most",
        "early",
        "in 10 ms",
        "outside",
        "CPU ms/s",
    )
    return [
        Table(("acquire", "ns", "beside", "to hit"), costs),
        Table(head, [crowd_row(results, name) for name in NAMES]),
        Table(flows, [flow_row(results, name, scale) for name in SHAPES]),
    ]


def crowd_row(results: Results, name: str) -> tuple[str, ...]:
    job = Job("wait", name)
    whole = [number(results.best(job, figure), digits=0) for figure in ("timers", "overtaken", "early")]
    cpu = results.best(job, "cpu")
    return (
        name,
        results.call(name, "wait"),
        number(results.best(job, "seconds"), digits=3),
        number(results.best(job, "beyond"), " %", 2),
        whole[0],
        number(None if cpu is None else cpu * 1e3, digits=0),
        *whole[1:],
    )


def flow_row(results: Results, name: str, scale: Scale) -> tuple[str, ...]:
    """The round in which it was least late; early counts in all of them."""
    rounds = [each for each in results.rounds.get(Job("shape", name), []) if "rate" in each]
    if not rounds:
        return (name, *(number(None),) * 8)
    best = min(rounds, key=lambda each: each["late_p99"])
    return (
        name,
        number(best["rate"]),
        *(number(best[figure], digits=0) for figure in ("late_p50", "late_p99", "late_most")),
        number(early(results, name), digits=0),
        f"{best['least']} to {best['most']}",
        f"{sum(abs(each - IN_A_BIN) > WITHIN for each in best['bins'])} of {len(best['bins'])}",
        number(best["cpu"] * 1e3 / scale.shaping),
    )


def early(results: Results, name: str) -> float | None:
    return largest(results.all(Job("shape", name), "early"))


def targets(results: Results, scale: Scale) -> list[Target]:
    crowd = Job("wait", BUCKET)
    best = f"{scale.waiters:,} waiters at {A_SECOND}/s"
    found = [
        Target(f"{best}, time beyond the ideal {ideal(scale.waiters):g} s", 1, results.best(crowd, "beyond"), "%"),
        Target(f"{best}, timers set at a time", 1, results.best(crowd, "timers"), "timers"),
    ]
    for name, latest in LATEST_MS.items():
        job = Job("shape", name)
        late, uneven = divided(results.best(job, "late_p99"), 1e3), results.best(job, "uneven")
        found += [
            Target(f"{name}, rate off {RATE:,}/s", 1, results.best(job, "off"), "%"),
            Target(f"{name}, items that left early", 0, early(results, name), "items"),
            Target(f"{name}, late, p99", latest, late, "ms"),
            Target(f"{name}, every 10 ms holds {IN_A_BIN}, give or take", WITHIN, uneven, "items"),
        ]
    ratios = [(name, results.ratio(name, hit)) for name, hit in ACQUIRED.items()]
    return [*found, *(Target(f"{name} without waiting, against hit", 1.5, measured) for name, measured in ratios)]


def plots(results: Results, scale: Scale) -> dict[str, str]:
    """Departures in each 10 ms, of the round that was the most even."""
    drawn = {}
    for name in SHAPES:
        rounds = [each for each in results.rounds.get(Job("shape", name), []) if "bins" in each]
        if rounds:
            even = min(rounds, key=lambda each: each["uneven"])
            title = f"{name}: departures in each 10 ms at {RATE:,}/s; the band is {IN_A_BIN}, give or take {WITHIN}"
            file = name.lower().replace(",", "").replace(" ", "-").replace(".", "-")
            drawn[f"{file}.svg"] = bars(title, even["bins"], IN_A_BIN, WITHIN, f"{len(even['bins']) / 100:g} s")
    return drawn


SECTION = Section(
    "waiting",
    "14. waiting: in order, and at a constant rate, in real time",
    f"""Tasks that wait for one key, all at once, at {A_SECOND} a second with {BURST} at once: the time is that from
    the first to leave to the last. Timers are the most that were set when the event loop went to sleep; overtaken
    is how often somebody left just before one that came earlier. throttled-py counts in whole seconds, so its
    waiters may leave early; pyrate-limiter adds 50 ms to every wait; asyncio-throttle looks every 10 ms. A shaper
    of {RATE:,}/s with room for {QUEUE:,} drains a source that always has more. Late is how long after its
    promised time an item left, early how many left before it, outside in
    how many of the 10 ms it was not {IN_A_BIN}, give or take {WITHIN}. time.sleep and loop.call_at are a thread and
    an event loop that do nothing but wake at these instants: no shaper can be better on this machine, so a target
    that they miss too says that the machine was not quiet. asyncio asks the system for whole milliseconds. Of
    several rounds the one with the smallest p99 is shown. The garbage collector is on here.""",
    jobs,
    tables,
    targets,
    plots,
)
