"""Numbers that articles publish, recomputed: the figures of docs/claims.md."""

from __future__ import annotations

from bench.claims import ARTICLE, CROWDS, STORES, Crowd, sample
from bench.jobs import Job, Results, Scale
from bench.report import UNKNOWN, Table, Target, number
from bench.sections.section import Section

TRAFFIC = (
    "WordPress", "ERDDAP", "NASA", "EPA",
    "random, half the limit", "random, the limit", "random, twice the limit", "even, the limit",
    "few of many (zipf)", "both sides of a seam", "whole amount at once",
)  # fmt: skip
WRONG = ("traffic", "limit", "requests", "same past", "own past", "offered", "near the limit", "of them wrong")
SOURCES = (
    "traffic", "clients", "of them wrongly answered: same, own, offered", "most passed", "above the limit", "missed",
    "blamed", "mean gap", "near the limit",
)  # fmt: skip


def weighed(crowd: Crowd, store: str) -> Job:
    return Job("claim bytes", f"{store} | {crowd.limit}", sample(crowd, store))


def jobs(scale: Scale) -> list[Job]:
    return [
        *(Job("claim", name) for name in TRAFFIC),
        *(weighed(crowd, store) for crowd in CROWDS for store in STORES),
    ]


def tables(results: Results, scale: Scale) -> list[Table]:
    stores = tuple(f"bytes in {store}" for store in STORES[:-1])
    return [
        Table(WRONG, [line(results, name, "wrong", len(WRONG)) for name in TRAFFIC]),
        Table(SOURCES, [line(results, name, "sources", len(SOURCES)) for name in TRAFFIC]),
        Table(
            ("limit, used up", "state", *stores, ARTICLE, "clients", "MB in each"),
            [crowd_row(results, crowd) for crowd in CROWDS],
        ),
    ]


def line(results: Results, name: str, table: str, width: int) -> list[str]:
    found = [each[table] for each in results.rounds.get(Job("claim", name), []) if table in each]
    return found[0] if found else [name, *[UNKNOWN] * (width - 1)]


def crowd_row(results: Results, crowd: Crowd) -> tuple[str, ...]:
    each = [results.best(weighed(crowd, store), "bytes") for store in STORES]
    return (
        crowd.limit,
        number(results.best(weighed(crowd, STORES[0]), "state"), digits=0),
        *(number(bytes_a_client, digits=0) for bytes_a_client in each),
        f"{crowd.clients:,}",
        ", ".join(number(one and one * crowd.clients / 1e6) for one in each),
    )


def targets(results: Results, scale: Scale) -> list[Target]:
    return []


SECTION = Section(
    "claims",
    "24. claims: published numbers, recomputed",
    """A window of two counters on real logs and made traffic, in virtual time, by the three measures of docs/lab.md and
    by source; docs/claims.md says what each column means, and a test recomputes its rows. Bytes: clients that have used
    their limit up, in the resident set, in the files of a shared store, in a server's `used_memory`, and in a server in
    the structures that the articles name: sorted sets, hashes, two strings.""",
    jobs,
    tables,
    targets,
)
