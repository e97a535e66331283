"""Callers of servers that limit them: what a fleet uses of a limit, what a budget adds, and crowds in virtual time."""

from __future__ import annotations

from statistics import median

from bench.client_callers import LEARNED, PUBLISHED
from bench.client_fleet import AT_REDIS, FLEETS, PROCESSES, TASKS
from bench.client_servers import RATE, SILENT
from bench.client_transport import TRANSPORTS
from bench.client_virtual import BY_MEAN, CROWDS, MINUTES, REPLAYS
from bench.jobs import Job, Results, Scale, largest, smallest
from bench.report import Table, Target, number, ratio
from bench.sections.section import Section

PACED = tuple(name for name in REPLAYS if name.endswith(BY_MEAN))
KNOWN = tuple(name for name in FLEETS if name.startswith((PUBLISHED, AT_REDIS)))
TOLD = tuple(name for name in FLEETS if name.startswith(LEARNED) and SILENT not in name)
FOUND = (f"{LEARNED} | {SILENT}",)


def jobs(scale: Scale) -> list[Job]:
    return [
        *(Job("transport", name) for name in TRANSPORTS),
        *(Job("crowd back", name) for name in CROWDS),
        *(Job("trace", name) for name in REPLAYS),
        *(Job("fleet", name) for name in FLEETS),
    ]


def kept(results: Results, name: str, figure: str) -> float | None:
    found = results.all(Job("transport", name), figure)
    return median(found) if found else None


def tables(results: Results, scale: Scale) -> list[Table]:
    def best(kind: str, name: str, figure: str, unit: str = "", digits: int = 1) -> str:
        return number(results.best(Job(kind, name), figure), unit, digits)  # type: ignore[arg-type]

    fleets = [
        (*name.split(" | "), best("fleet", name, "used", " %"), best("fleet", name, "refused", " %", 2))
        for name in FLEETS
    ]
    added = [
        (
            name,
            *(best("transport", name, each) for each in ("bare_cpu_us", "cpu_us")),
            ratio(kept(results, name, "ratio")),
            ratio(kept(results, name, "cpu_ratio")),
        )
        for name in TRANSPORTS
    ]
    crowds = [
        (
            name.replace("_", " "),
            *(best("crowd back", name, each, digits=0) for each in ("usual", "peak")),
            *(best("crowd back", name, each, "x", 2) for each in ("by_usual", "by_mean")),
        )
        for name in CROWDS
    ]
    traces = [
        (
            *name.split(" | "),
            best("trace", name, "used", " %"),
            *(best("trace", name, each, digits=0) for each in ("sent", "refused", "off")),
        )
        for name in REPLAYS
    ]
    return [
        Table(("fleet", "server", "used", "refused"), fleets),
        Table(("transport", "bare us", "paced us", "paced/bare", "by CPU"), added),
        Table(("told while away", "usual 1/s", "peak 1/s", "by usual", "by mean after"), crowds),
        Table(("trace", "counted by", "reserves", "tokens used", "sent", "refused", "report off by"), traces),
    ]


def targets(results: Results, scale: Scale) -> list[Target]:
    def each(kind: str, names: tuple[str, ...], figure: str) -> list[float | None]:
        return [results.best(Job(kind, name), figure) for name in names]  # type: ignore[arg-type]

    bars = (("published limit", KNOWN, 97, 0.1), ("told limit", TOLD, 95, 0.5), ("from 429s alone", FOUND, 85, 1))
    fleets = [
        target
        for words, names, used, refused in bars
        for target in (
            Target(f"{words}: used", used, smallest(each("fleet", names, "used")), "%", at_least=True),
            Target(f"{words}: refused", refused, largest(each("fleet", names, "refused")), "%"),
        )
    ]
    return [
        *fleets,
        *(
            Target(f"requests/s of the bare transport's, {name}", 0.95, kept(results, name, "ratio"), at_least=True)
            for name in TRANSPORTS
        ),
        Target("peak after an outage, by the usual second", 1.5, largest(each("crowd back", CROWDS, "by_usual"))),
        Target("peak after an outage, by the mean after it", 1.5, largest(each("crowd back", CROWDS, "by_mean"))),
        Target("tokens of a trace that are used", 95, smallest(each("trace", PACED, "used")), "%", at_least=True),
        Target("requests of a trace that are refused", 0, largest(each("trace", PACED, "refused")), ""),
        Target("tokens by which a report is off", 0, largest(each("trace", REPLAYS, "off")), ""),
    ]


SECTION = Section(
    "client",
    "23. client: budgets of APIs that limit their callers",
    f"""A fleet is {PROCESSES} processes of {TASKS} tasks on one store, shared memory unless Redis is said; the tasks
    ask a real server for all that it allows, {RATE} a second for everybody. The server counts, after the
    first seconds: used is what it admitted by its rate, refused is by all requests. nginx tells nothing but
    429: there, half of the time passes before anything is counted. Bare retries ask again at once; tenacity
    waits by wait_random_exponential(max=60), httpx-retries by its defaults; botocore's classes of adaptive
    rates run in threads, one limiter a process. A transport is measured in turn with the bare one, by one
    caller of a server in another process that answers with two bytes. In virtual time: 1,000 programs ask
    once in 5 s, the server fails for a minute, and tells nothing, ten seconds, or the end. 128 workers replay
    a trace for {MINUTES} minutes; they want more than the limits allow.""",
    jobs,
    tables,
    targets,
)
