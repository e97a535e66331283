"""Leases: four processes that share a limit on a server, and how often they ask it, in virtual time."""

from __future__ import annotations

from collections import Counter

from tests.support.lease_setup import DEFAULT, Setup
from tests.support.lease_world import World

from tools.pictures.svg import Picture, Scale

LIMIT, RATE, NODES, SECONDS = "200/second", 200, 4, 8
PHASES = ((0.0, (20.0,) * NODES), (3.0, (100.0,) * NODES))
"""Requests a second of each process: less than the limit at first, then twice as much."""


def world(*, leased: bool) -> tuple[list[int], list[int]]:
    """Requests that are admitted and round trips, in each second."""
    setup = Setup(seed=1, limits=LIMIT, lease=DEFAULT if leased else None, seconds=SECONDS, phases=PHASES)
    ran = World(setup).run()
    passed: Counter[int] = Counter()
    for spent in ran.spent:
        passed[spent.at // 1_000_000] += spent.units
    seconds = range(SECONDS)
    return [passed[second] for second in seconds], [ran.ledger.by_second[second] for second in seconds]


def picture() -> str:
    """Admitted requests as bars, and round trips as lines, with leases and without."""
    passed, trips = world(leased=True)
    _, without = world(leased=False)
    drawn = Picture(760, 300, "Leases: four processes admit the limit, with few round trips")
    across, up = Scale((0, SECONDS), (56, 740)), Scale((0, 450), (250, 70))
    drawn.text(
        20, 28, f"Four processes, {LIMIT}: {sum(trips)} round trips with leases, {sum(without)} without", "ink title"
    )
    drawn.text(20, 50, "bars: admitted, blue: round trips with leases, violet: without, dashed: the limit", "soft")
    for level in (0, RATE, 2 * RATE):
        drawn.line(56, up(level), 740, up(level), "most" if level == RATE else "grid")
        drawn.text(48, up(level) + 4, str(level), "soft", "end")
    for second, count in enumerate(passed):
        drawn.rect(across(second + 0.15), up(count), across(0.7) - across(0), up(0) - up(count), "used")
        drawn.text(across(second + 0.5), 270, f"{second + 1}. s", "soft", "middle")
    for counts, kind in ((without, "other"), (trips, "edge")):
        drawn.path([(across(second + 0.5), up(count)) for second, count in enumerate(counts)], kind)
    return drawn.svg()
