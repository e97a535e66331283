"""Three regions and one server 100 ms away: the figures of docs/regions.md, by the real leases in virtual time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headgate.clock import SECOND
from headgate.stores.leases.terms import Lease
from tests.support import ROOT
from tests.support.lease_laws import admitted, violations
from tests.support.lease_setup import Setup
from tests.support.lease_world import World

pytestmark = pytest.mark.engineless

PAGE = ROOT / "docs" / "regions.md"
FAR = Setup(seed=1, limits="120/second", seconds=10.0, awaited="yes", latency=0.05, deadline=0.5)
ALL, ONE, FEW = (45.0,) * 12, (90.0,) * 4 + (0.0,) * 8, (8.0,) * 12
"""Requests a second of twelve processes, four in each region."""


def fullest_second(world: World) -> int:
    """The most that was admitted in any second."""
    times = sorted(each.at for each in world.spent)
    return max(sum(at - SECOND < other <= at for other in times) for at in times)


@pytest.mark.parametrize(
    ("said", "rates", "lease"),
    [
        ("every region asks for 180 a second", ALL, Lease()),
        ("one region asks for 360 a second", ONE, Lease()),
        ("every region asks for 32 a second", FEW, Lease()),
        ("the same, `Lease(validity=5)`", FEW, Lease(validity=5)),
    ],
)
def test_the_page_tells_what_regions_admit_over_a_slow_link(said, rates, lease):
    """No law of leases is broken at a round trip of 100 ms, and each row of the table is what came out."""
    world = World(replace(FAR, lease=lease, phases=((0.0, rates),))).run()
    ledger = world.ledger
    found = (ledger.asked, admitted(world), fullest_second(world), world.trips, ledger.waited)
    assert violations(world) == []
    assert f"| {said} | {' | '.join(f'{each:,}' for each in found)} |" in PAGE.read_text(encoding="utf-8")
