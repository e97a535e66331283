"""Run a trial and say whether the estimator held the overload."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.clock import SECOND
from headgate.lab.overload.clients import ClosedClient, OpenClients
from headgate.lab.overload.scenarios import Scenario
from headgate.lab.overload.trial import Front, Record
from headgate.lab.overload.world import World
from headgate.shed import LoadShedder
from headgate.shed.estimators import Estimator

NEVER = 99


@dataclass(frozen=True)
class Result:
    """The result of a trial."""

    goodput: float
    """Answers in time, as a part of what could be served; the least of the measured times."""
    slowdown: float
    """The 99th percentile of the latency of admitted requests, as a multiple of the same without load."""
    recovery: float
    """Seconds from the end of the overload until nine of ten requests are answered in time again."""

    @property
    def held(self) -> bool:
        """Whether the overload did no more harm than is allowed."""
        return self.goodput >= 0.9 and self.slowdown <= 3 and self.recovery <= 10


def percentile(values: list[int], part: float) -> float:
    """The value that `part` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else 0.0


def run(scenario: Scenario, estimator: Estimator, seed: int) -> list[Record]:
    """Let the clients of a scenario call its service through a shedder; return a record for each stream."""
    world = World(seed)
    shedder = LoadShedder(estimator, clock=world)
    front = Front(world, scenario.build(world), shedder, scenario.wait)
    records = [Record() for _ in scenario.streams]
    clients, think = scenario.closed or (0, 0)
    for _ in range(clients):
        ClosedClient(front, records[0], scenario.timeout, think)
    for stream, record in zip(scenario.streams, records, strict=True):
        OpenClients(front, record, scenario, stream)
    world.run(scenario.seconds * SECOND)
    front.stop()
    return records


def measure(scenario: Scenario, records: list[Record]) -> Result:
    """Compare the records with what the scenario could have had."""
    record = together(records)
    world = World(0)
    alone = percentile([int(scenario.unloaded(world)) for _ in range(20_000)], 0.99)
    goodput, latencies = 1.0, []
    for first, end, peak in scenario.measured:
        goodput = min(goodput, sum(record.good[second] for second in range(first, end)) / (end - first) / peak)
        latencies += [each for second in range(first, end) for each in record.latencies[second]]
    return Result(goodput, percentile(latencies, 0.99) / alone, recovery_of(scenario, record))


def recovery_of(scenario: Scenario, record: Record) -> int:
    """Return the seconds from the end of the overload to three in which nine of ten calls are answered in time."""
    if scenario.recovered is None:
        return 0
    for second in range(scenario.recovered, scenario.seconds - 3):
        three = range(second, second + 3)
        if sum(record.good[each] for each in three) >= 0.9 * sum(record.wanted[each] for each in three):
            return second - scenario.recovered
    return NEVER


def together(records: list[Record]) -> Record:
    """Add records up."""
    if len(records) == 1:
        return records[0]
    whole = Record()
    for record in records:
        for second, count in record.wanted.items():
            whole.wanted[second] += count
        for second, count in record.good.items():
            whole.good[second] += count
        for second, latencies in record.latencies.items():
            whole.latencies[second] += latencies
    return whole
