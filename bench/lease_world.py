"""Fleets that lease, in virtual time: what the simulation of the tests says of them. Nothing here is timed."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from typing import NamedTuple

from bench.measure import Figures


class Fleet(NamedTuple):
    limits: str
    nodes: int
    total: float
    """Requests a second, of all nodes."""
    seconds: float
    alike: bool = True
    """Or half of the nodes are asked ten times as often as the others."""


STORMS, SLIDING_STORMS = "storms and ambushes", "storms, ambushes and overload on sliding windows"
HOT, BUCKET, SKEWED = "hot key, away from its limit", "saturated", "saturated, 10:1"
WINDOW, SLIDING, THOUSAND = "saturated window", "saturated sliding window", "a thousand nodes"
FLEETS = {
    HOT: Fleet("10000/second", 10, 6_000, 10.0),
    BUCKET: Fleet("1000/second", 20, 2_000, 5.0),
    SKEWED: Fleet("1000/second", 20, 2_000, 5.0, alike=False),
    WINDOW: Fleet("5000/5s by fixed-window", 20, 1_500, 10.0),
    SLIDING: Fleet("5000/5s by sliding-window/10", 20, 1_500, 10.0),
    THOUSAND: Fleet("100000/second", 1_000, 60_000, 3.0),
}


def simulate(name: str, worlds: int) -> Figures:
    return _fleet(FLEETS[name]) if name in FLEETS else _storms(name, worlds)


def _storms(name: str, worlds: int) -> Figures:
    from tests.support.lease_laws import try_out, try_out_sliding

    trial: Callable[[int], list[str]] = try_out if name == STORMS else try_out_sliding
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        wrong = [found for found in pool.map(trial, range(worlds), chunksize=5) if found]
    return {"worlds": worlds, "violations": len(wrong), "first": wrong[:1]}


def _fleet(fleet: Fleet) -> Figures:
    """The worse of threads and tasks."""
    from tests.support.lease_laws import decisions_a_trip, equal, fairness, unequal, utilisation, violations
    from tests.support.lease_setup import Setup
    from tests.support.lease_world import World

    phases = (equal if fleet.alike else unequal)(fleet.nodes, fleet.total)
    setup = Setup(seed=1, limits=fleet.limits, phases=phases, seconds=fleet.seconds, threads=4)
    worlds = [World(each).run() for each in (setup, replace(setup, awaited="yes"))]
    return {
        "asked": worlds[0].ledger.asked,
        "utilisation": 100 * min(map(utilisation, worlds)),
        "fairness": min(map(fairness, worlds)),
        "per_trip": min(map(decisions_a_trip, worlds)),
        "violations": sum(len(violations(world)) for world in worlds),
    }
