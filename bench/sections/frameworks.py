"""Limits at endpoints, as each framework's users write them, on real servers."""

from __future__ import annotations

from bench.framework_apps import framework_apps
from bench.jobs import Job, Results, Scale, divided
from bench.report import Table, Target, number, ratio
from bench.sections.section import Section
from bench.sections.web import kept

NAMES = tuple(each.name for each in framework_apps() if each.bare)
RIVALS = {
    "FastAPI, limited": "FastAPI, slowapi",
    "Flask, limited": "Flask, flask-limiter",
    "Django, limited": "Django, django-ratelimit",
    "aiohttp, limited": "",
}


def jobs(scale: Scale) -> list[Job]:
    return [Job("serve", name) for name in NAMES]


def rate(results: Results, name: str, figure: str = "rate") -> float | None:
    return max(results.all(Job("serve", name), figure), default=None)


def tables(results: Results, scale: Scale) -> list[Table]:
    rows = [
        (
            name,
            results.call(name, "serve"),
            *(number(rate(results, name, each), digits=0) for each in ("bare_rate", "rate")),
            ratio(kept(results, name)),
            *(number(results.best(Job("serve", name), each)) for each in ("bare_cpu_us", "cpu_us")),
            ratio(kept(results, name, "cpu_ratio")),
        )
        for name in NAMES
    ]
    head = ("at endpoints", "with", "bare 1/s", "limited 1/s", "limited/bare", "bare us", "limited us", "by CPU")
    return [Table(head, rows)]


def faster(results: Results, name: str) -> float | None:
    """To the rival, each by its own bare app: they are loaded at different times."""
    return divided(kept(results, name), kept(results, RIVALS[name]))


def targets(results: Results, scale: Scale) -> list[Target]:
    found = []
    for name, rival in RIVALS.items():
        found.append(Target(f"requests/s of the bare app's, {name}", 0.9, kept(results, name), at_least=True))
        if rival:
            found.append(Target(f"{name} to {rival}", 1.5, faster(results, name), at_least=True))
    return found


SECTION = Section(
    "frameworks",
    "17. frameworks: a limit at each endpoint",
    """The apps and the client of section 15, with a limit written at each endpoint in the way of the framework's users:
    a decorator and one line for the app. Each limited app is loaded in turn with its bare twin; the ratio is the median
    of neighbouring runs, and one library's to another's is the ratio of their ratios. slowapi and flask-limiter send
    their header fields, as headgate does; django-ratelimit has none, and counts in the process's own cache.""",
    jobs,
    tables,
    targets,
)
