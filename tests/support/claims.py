"""Published claims about windows, recomputed: one pass over requests, with the real engine and plain lists of times.

The lab counts wrong answers over all clients. The claims are also about single sources and about the size of the
error, which are counted here; what both count has to be the same.
"""

from __future__ import annotations

import gzip
import re
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from headgate import Limit, Limiter, MemoryStore
from headgate.clock import MINUTE, SECOND, HandClock
from headgate.lab import TRAFFIC, Log
from headgate.lab.traffic import Scene
from tests.support.traces import trace

BY = "by sliding-window"
COUNTLESS = 1_000_000
"""An amount that nothing reaches: the window then only counts, and what is left of it tells its count."""
MEASURES = ("same", "own", "offered")


class Trace(NamedTuple):
    """A log, and the limit by which it is judged."""

    file: str
    limit: str
    fields: dict[str, str] | None = None


TRACES = {
    "WordPress": Trace("apache-wordpress-2016.log.gz", "60/minute"),
    "ERDDAP": Trace("nginx-erddap-api-2024.log.gz", "10/minute"),
    "NASA": Trace("nasa-http-1995-08-01.tsv.gz", "10/minute", {"time": "time", "key": "host"}),
    "EPA": Trace("epa-http-1995.log.gz", "10/minute"),
}


class Made(NamedTuple):
    """Made traffic of clients that ask, on average, for a multiple of their limit."""

    kind: str
    load: float | None = None
    """None: as the kind of traffic is by itself."""
    clients: int = 20
    minutes: int = 30


MADE_LIMIT = "60/minute"
MADE = {
    "random, half the limit": Made("poisson", 0.5),
    "random, the limit": Made("poisson", 1),
    "random, twice the limit": Made("poisson", 2),
    "even, the limit": Made("steady"),
    "few of many (zipf)": Made("zipf", 0.5, 200, 10),
    "both sides of a seam": Made("seam"),
    "whole amount at once": Made("batches"),
}


def made(name: str) -> Iterator[tuple[int, str, int]]:
    """The requests of made traffic."""
    chosen, limit = MADE[name], Limit.parse(MADE_LIMIT)
    rate = chosen.load and chosen.load * limit.amount * chosen.clients / (limit.period_us / SECOND)
    scene = Scene(limit.amount, limit.period_us, rate, chosen.clients, 0, chosen.minutes * MINUTE)
    return TRAFFIC[chosen.kind].requests(scene)


class Times:
    """The times of one client's requests in the last period."""

    def __init__(self, period: int) -> None:
        self.period = period
        self.times: deque[int] = deque()

    def before(self, now: int) -> int:
        """How many there are; one that is exactly a period old is out."""
        while self.times and self.times[0] <= now - self.period:
            self.times.popleft()
        return len(self.times)


class Source:
    """One client."""

    def __init__(self, period: int) -> None:
        self.windows = {measure: Times(period) for measure in MEASURES}
        self.wrong: set[str] = set()
        self.most = 0
        """The most requests it sent in a period."""
        self.mitigated = False
        """Whether the estimate was above the limit at some request."""


@dataclass
class Experiment:
    """What a window of two counters did to requests, all of them counted as Cloudflare counted theirs."""

    amount: int
    requests: int = 0
    near: int = 0
    """Requests at which the client's true count was within a fifth of the limit."""
    wrong: dict[str, int] = field(default_factory=lambda: dict.fromkeys(MEASURES, 0))
    gap: float = 0.0
    """The sum of |estimate - truth| / truth over all requests, each of which is counted in both."""
    near_gap: float = 0.0
    near_wrong: int = 0
    """Wrong estimates at those near the limit."""
    most: int = 0
    """The most requests of one client that the window passed in a period."""
    sources: dict[str, Source] = field(default_factory=dict)

    @property
    def by_source(self) -> dict[str, int]:
        """Clients with a wrong answer."""
        return {each: sum(each in source.wrong for source in self.sources.values()) for each in MEASURES}

    @property
    def above(self) -> list[Source]:
        """Clients that sent more than the limit in some period."""
        return [source for source in self.sources.values() if source.most > self.amount]

    @property
    def missed(self) -> list[Source]:
        """Clients above the limit whose estimate never was."""
        return [source for source in self.above if not source.mitigated]

    @property
    def highest(self) -> str:
        """How far the highest of the missed clients was above the limit."""
        most = max((source.most for source in self.missed), default=0)
        return f", up to {share(most - self.amount, self.amount, 0)} above" if most else ""

    @property
    def blamed(self) -> list[Source]:
        """Clients never above the limit whose estimate was."""
        return [source for source in self.sources.values() if source.mitigated and source.most <= self.amount]


def experiment(requests: Iterable[tuple[Any, ...]], words: str) -> Experiment:
    """Ask the window about each request, and an exact log; count all requests with a window that refuses none."""
    limit, clock = Limit.parse(f"{words} {BY}"), HandClock()
    hit = Limiter(limit, store=MemoryStore(clock=clock)).hit
    count = Limiter(limit.replace(amount=COUNTLESS), store=MemoryStore(clock=clock)).hit
    found = Experiment(limit.amount)
    for now, key, *_ in requests:
        clock.us = now
        source = found.sources.get(key)
        if source is None:
            source = found.sources[key] = Source(limit.period_us)
        judge(found, source, now, hit(key).allowed, COUNTLESS - count(key).remaining)
    return found


def judge(found: Experiment, source: Source, now: int, allowed: bool, estimate: int) -> None:
    """Compare one answer, and one estimate, with exact windows."""
    amount, windows = found.amount, source.windows
    truth = windows["offered"].before(now) + 1
    near = 5 * abs(truth - amount) <= amount
    answers = {"same": allowed, "own": allowed, "offered": estimate <= amount}
    for measure, answer in answers.items():
        window = windows[measure]
        fits = window.before(now) < amount
        if answer is not fits:
            found.wrong[measure] += 1
            source.wrong.add(measure)
            found.near_wrong += measure == "offered" and near
        if measure == "offered" or (fits if measure == "own" else allowed):
            window.times.append(now)
    gap = abs(estimate - truth) / truth
    found.requests += 1
    found.gap += gap
    if near:
        found.near += 1
        found.near_gap += gap
    found.most = max(found.most, len(windows["same"].times))
    source.most = max(source.most, truth)
    source.mitigated = source.mitigated or estimate > amount


def share(part: float, whole: int, digits: int) -> str:
    """Write a part of a whole in percent."""
    return f"{100 * part / whole:.{digits}f} %" if whole else "-"


def wrong_row(name: str, limit: str, found: Experiment) -> tuple[str, ...]:
    """A line of the page: wrong answers among all requests."""
    counts = [f"{found.wrong[each]:,} = {share(found.wrong[each], found.requests, 3)}" for each in MEASURES]
    near = share(found.near, found.requests, 1), share(found.near_wrong, found.near, 0)
    return name, limit, f"{found.requests:,}", *counts, *near


def source_row(name: str, found: Experiment) -> tuple[str, ...]:
    """A line of the page: sources, and the size of the error."""
    return (
        name,
        f"{len(found.sources):,}",
        " / ".join(f"{found.by_source[each]:,}" for each in MEASURES),
        f"{found.most / found.amount:.2f}x",
        f"{len(found.above):,}",
        f"{len(found.missed):,}{found.highest}",
        f"{len(found.blamed):,}",
        share(found.gap, found.requests, 1),
        share(found.near_gap, found.near, 1),
    )


@contextmanager
def log_of(name: str) -> Iterator[Log]:
    """The requests of a trace; those of EPA are first written in a format that the lab knows."""
    chosen = TRACES[name]
    path = trace(chosen.file)
    with TemporaryDirectory() as folder:
        yield Log([as_common(path, Path(folder)) if name == "EPA" else path], fields=chosen.fields)


EPA_LINE = re.compile(r"(\S+) \[(\d\d):(\d\d:\d\d:\d\d)\] (.*)")


def as_common(path: Path, folder: Path) -> Path:
    """Lines such as `host [29:23:53:25] "GET / HTTP/1.0" 200 1497`, of August 1995 in the east of the USA."""
    written = folder / "epa.log"
    with gzip.open(path, "rt", encoding="latin-1") as lines, written.open("w", encoding="latin-1") as common:
        for line in lines:
            client, day, time, rest = EPA_LINE.fullmatch(line.rstrip("\n")).groups()  # type: ignore[union-attr]
            common.write(f"{client} - - [{day}/Aug/1995:{time} -0400] {rest}\n")
    return written
