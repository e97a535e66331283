"""The values that travel: a job, how much of it to do, and the figures that came back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

Alone = Literal[
    "import", "time", "grow", "stalls", "spread", "together", "simulate", "lab", "page", "sql", "sql grown", "observe"
]
AtServer = Literal["one by one", "crowd", "threads", "weigh", "weigh full", "flood", "lease", "overload"]
InRealTime = Literal["wait", "shape", "flooded"]
BehindHttp = Literal["call", "rules", "serve", "edge", "edge grpc", "edge nginx"]
InAndOut = Literal["turn", "turn crowd", "permit"]
AsClient = Literal["fleet", "transport", "crowd back", "trace"]
Published = Literal["claim", "claim bytes"]
Kind = Alone | AtServer | InRealTime | BehindHttp | InAndOut | AsClient | Published


class Scale(NamedTuple):
    """How long to measure."""

    seconds: float = 0.1
    """Of one timed run, about."""
    repeats: int = 5
    """Timed runs in one process."""
    rounds: int = 3
    """Processes of each contestant; a round has one of each, so that all share the machine's good and bad minutes."""
    keys: int = 1_000_000
    rival_keys: int = 100_000
    many_keys: int = 10_000_000
    """0: leave it out."""
    waiters: int = 1_000
    """Tasks that wait for one key, at 100 a second."""
    shaping: float = 10
    """Seconds for which items leave at a constant rate."""
    worlds: int = 1_000
    """Simulated fleets in trouble."""
    asking: float = 60
    """Seconds for which a fleet of clients asks a server."""


QUICK = Scale(
    seconds=0.01,
    repeats=3,
    rounds=1,
    keys=100_000,
    rival_keys=10_000,
    many_keys=0,
    waiters=200,
    shaping=2,
    worlds=50,
    asking=10,
)


class Job(NamedTuple):
    """One measurement of one contestant."""

    kind: Kind
    contestant: str
    keys: int = 0

    @property
    def once(self) -> bool:
        """Memory is the same in every round, as is virtual time, and waiting takes as long as it takes."""
        return self.kind in (
            "grow", "weigh", "weigh full", "wait", "simulate", "overload", "flooded", "fleet", "crowd back", "trace",
            "claim", "claim bytes", "lab", "page", "sql grown", "observe",
        )  # fmt: skip

    def __str__(self) -> str:
        return f"{self.contestant}: {self.kind}{f' {self.keys:,} keys' if self.keys else ''}"


class Results:
    """The figures of every job and round, and the questions sections ask of them; None where nothing was measured."""

    def __init__(self) -> None:
        self.rounds: dict[Job, list[dict[str, Any]]] = {}

    def add(self, job: Job, figures: dict[str, Any]) -> None:
        self.rounds.setdefault(job, []).append(figures)

    def all(self, job: Job, figure: str) -> list[float]:
        """A figure in every round that has it."""
        return [each[figure] for each in self.rounds.get(job, []) if figure in each]

    def best(self, job: Job, figure: str = "ns") -> float | None:
        return min(self.all(job, figure), default=None)

    def ns(self, contestant: str) -> float | None:
        return self.best(Job("time", contestant))

    def ratio(self, contestant: str, to: str) -> float | None:
        return divided(self.ns(contestant), self.ns(to))

    def call(self, contestant: str, kind: Kind = "time") -> str:
        """The words that were timed."""
        found = [str(each["call"]) for each in self.rounds.get(Job(kind, contestant), []) if "call" in each]
        return found[0] if found else "not measured"

    def complaints(self, word: Literal["failed", "missing"]) -> list[str]:
        return sorted({str(each[word]) for rounds in self.rounds.values() for each in rounds if word in each})


def divided(one: float | None, other: float | None) -> float | None:
    return None if one is None or not other else one / other


def largest(values: Sequence[float | None]) -> float | None:
    """The largest, or None if any is not known."""
    return None if None in values or not values else max(value for value in values if value is not None)


def smallest(values: Sequence[float | None]) -> float | None:
    """The smallest, or None if any is not known."""
    return None if None in values or not values else min(value for value in values if value is not None)
