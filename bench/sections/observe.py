"""What it costs to be watched."""

from __future__ import annotations

from bench.jobs import Job, Results, Scale, divided, largest
from bench.observe import COUNTED, PAIRS, RULES, SCRAPED, WATCHED, WORKERS
from bench.report import Table, Target, number, ratio
from bench.sections.section import Section

NAMES = {
    "hit": "limiter.hit",
    "prometheus": "an ASGI request that passes, exported to Prometheus",
    "telemetry": "the same, exported to OpenTelemetry",
    "refused": "an ASGI request that is refused, exported to Prometheus",
}


def jobs(scale: Scale) -> list[Job]:
    return [Job("observe", name) for name in (COUNTED, SCRAPED, WATCHED)]


def spent(results: Results, name: str) -> float | None:
    return results.best(Job("observe", COUNTED), name)


def added(results: Results, name: str) -> float | None:
    """Microseconds more."""
    both = [spent(results, f"{name} {side}") for side in ("with", "without")]
    return None if both[0] is None or both[1] is None else (both[0] - both[1]) / 1e3


def tables(results: Results, scale: Scale) -> list[Table]:
    rows = [
        (
            NAMES[name],
            number(spent(results, f"{name} without")),
            number(spent(results, f"{name} with")),
            ratio(divided(spent(results, f"{name} with"), spent(results, f"{name} without"))),
            number(added(results, name), digits=3),
        )
        for name in PAIRS
    ]
    shares = [
        (source, number(results.best(Job("observe", WATCHED), source), " %", 2)) for source in ("page", "directory")
    ]
    scrapes = [
        (f"{RULES} rules, {WORKERS} workers", *(number(results.best(Job("observe", SCRAPED), each)) for each in MS))
    ]
    return [
        Table(("counted", "without ns", "with ns", "with/without", "us more"), rows),
        Table(("a scrape", "median ms", "best ms"), scrapes),
        Table(("headgate top of a", "share of a core"), shares),
    ]


MS = ("ms", "best_ms")


def targets(results: Results, scale: Scale) -> list[Target]:
    hit = divided(spent(results, "hit with"), spent(results, "hit without"))
    top = largest([results.best(Job("observe", WATCHED), source) for source in ("page", "directory")])
    return [
        Target("limiter.hit with counting, to the same engine without", 1.03, hit),
        Target("CPU added to an ASGI request by counts, keys and Prometheus", 1, added(results, "prometheus"), "us"),
        Target("CPU added to an ASGI request by counts, keys and OpenTelemetry", 1, added(results, "telemetry"), "us"),
        Target(
            f"a scrape of {RULES} rules over {WORKERS} workers, the best",
            20,
            results.best(Job("observe", SCRAPED), "best_ms"),
            "ms",
        ),
        Target("headgate top, share of a core, the worst", 2, top, "%"),
    ]


SECTION = Section(
    "observe",
    "29. observe: the cost of counts, metrics and headgate top",
    f"""Counts cannot be switched off, so the sources are compiled once more without the lines that count; nothing else
    differs, and a proof shows that the one engine counts a hit and the other does not. Both run in turn, each in
    processes of its own. An ASGI request is one of the section web; with counting, its app also exports its counts,
    publishes them in a directory once a second and lists its keys, and the time is that of all its threads. A scrape is
    one call of prometheus_client's generate_latest in one of {WORKERS} workers, each with {RULES} rules and full lists
    of keys. headgate top draws a screen each second, of the page of an app or of the directory of {WORKERS} workers,
    again with {RULES} rules and full lists; its start is left out.""",
    jobs,
    tables,
    targets,
)
