"""What must be true of every world that leases, what is wanted of it, and the worlds to try it on."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from math import inf
from typing import Final

from headgate.clock import SECOND
from headgate.limit import Limit
from headgate.stores.leases.ledger import LeaseLedger
from headgate.stores.leases.terms import Lease, ends_with_window
from tests.support.lease_setup import Phases, Setup, Spent
from tests.support.lease_world import World
from tests.support.sliding_laws import Overloaded, beyond_sliding, overload, sliding

ROUNDING: Final = 2
"""Microseconds: each clock is read in whole ones."""


def violations(world: World) -> list[str]:
    """What is wrong in a world that has run, in words."""
    misled = 0 if world.setup.greedy else world.ledger.misled
    return [*uncounted(world), *too_many(world), *([f"{misled} were told a time that was too early"] if misled else [])]


def too_many(world: World) -> list[str]:
    """Where the fleet admitted more than its limits allow."""
    by_key: dict[str, list[Spent]] = defaultdict(list)
    for spent in sorted(world.spent):
        by_key[spent.key].append(spent)
    return [
        f"{key}: {wrong}"
        for limit in world.limits
        for key, spents in by_key.items()
        for wrong in bound_of(limit)(world, limit, spents)
    ]


def bound_of(limit: Limit) -> Callable[[World, Limit, list[Spent]], list[str]]:
    """The law for a limit of this kind."""
    if limit.step.LENDS:
        return beyond_bucket
    return beyond_window if ends_with_window(limit) else beyond_sliding


def uncounted(world: World) -> list[str]:
    """Units that came from nowhere, went nowhere, or were in two places; and who was never answered."""
    ledger = world.ledger
    leased = sum(spent.units for spent in world.spent if spent.leased)
    exact = sum(spent.units for spent in world.spent if not spent.leased)
    held = sum(node.held() for node in world.nodes)
    ledger_type = {
        "charged: lost, leased, exact": (ledger.charged, ledger.lost + ledger.received + exact),
        "leased: spent, held, handed out, worn, crashed": (
            ledger.received,
            leased + held + ledger.handed + ledger.worn + ledger.crashed,
        ),
    }
    if not world.setup.crashes:
        ledger_type["asked: answered, turned away"] = ledger.asked, ledger.answered + ledger.turned_away
        ledger_type["heard a yes: spent"] = ledger.yes, len(world.spent)
    found = [f"{names}: {one} is not {other}" for names, (one, other) in ledger_type.items() if one != other]
    if not ledger.given_back <= ledger.sent_back <= ledger.handed:
        found.append(f"given back: {ledger.given_back} of {ledger.sent_back} sent, of {ledger.handed} handed out")
    return found


def beyond_bucket(world: World, limit: Limit, spents: list[Spent]) -> list[str]:
    """In every interval t at most burst + rate * (t + validity)."""
    part, at = fullest(world, limit, spents)
    return [f"{limit} at {at}: {part:.4f} of what may be admitted"] if part > 1 else []


def fullest(world: World, limit: Limit, spents: list[Spent]) -> tuple[float, int]:
    """The largest part of burst + rate * (t + validity) that was admitted in any interval t, and when it ended.

    Exact: a meter that drains at the rate holds the worst of all intervals that end now. Each time the server forgets
    everything is a burst more. That counts for intervals that begin up to a validity after it, so the intervals are
    taken apart by when they begin.
    """
    off = 1 + world.setup.drift_ppm / 1e6
    rate = limit.amount / limit.period_us * off
    most = limit.burst + rate * (world.validity_us * off + ROUNDING) + 1e-6
    restarts = sorted(round(second * SECOND) for second in world.setup.restarts)
    begins = [-inf, *(at + world.validity_us * off + ROUNDING for at in restarts), inf]
    worst = (0.0, 0)
    for place, (begin, end) in enumerate(pairwise(begins)):
        level, last = 0.0, 0
        for at, _, units, _, _ in spents:
            if at < begin:
                continue
            level -= (at - last) * rate
            last = at
            if at < end:
                level = max(0.0, level)
            level += units
            allowed = most + limit.burst * sum(restart <= at for restart in restarts[place:])
            if level > worst[0] * allowed:
                worst = (level / allowed, at)
    return worst


def beyond_window(world: World, limit: Limit, spents: list[Spent]) -> list[str]:
    """In each of the server's windows at most the limit, and as much again for each time the server forgot in it.

    Clocks that run apart may take what is spent just after a seam for spent just before it.
    """
    drift = world.setup.drift_ppm
    blurred = round(world.validity_us * 2 * drift / 1e6) + ROUNDING if drift else 0
    clock, offset = world.server.clock, limit.params.offset
    room: Counter[int] = Counter()
    for second in world.setup.restarts:
        room[(clock.at(round(second * SECOND)) + offset) // limit.period_us] += limit.amount
    for at, _, units, _, leased in spents:
        window, phase = divmod(clock.at(at) + offset, limit.period_us)
        if leased and phase < blurred and room[window - 1] + limit.amount >= units:
            window -= 1
        room[window] -= units
        if room[window] + limit.amount < 0:
            return [f"{limit} at {at}: {-room[window]} in one window"]
    return []


def in_windows(world: World) -> list[int]:
    """What was admitted in each of the server's windows, while requests came."""
    period, end = world.limits[0].period_us, round(world.setup.seconds * SECOND)
    counts: Counter[int] = Counter()
    for each in world.spent:
        counts[world.server.clock.at(each.at) // period] += each.units * (each.at < end)
    return [counts[window] for window in sorted(counts) if counts[window]]


def admitted(world: World, since: float = 0.0) -> int:
    """Units, while requests came."""
    return sum(each.units for each in world.spent if since * SECOND <= each.at < world.setup.seconds * SECOND)


def utilisation(world: World) -> float:
    """What a world admitted, by what it admits where every request is a round trip."""
    return admitted(world) / admitted(World(replace(world.setup, lease=None)).run())


def fairness(world: World, since: float = 0.0) -> float:
    """Jain's index over what the nodes were given: 1 if all were given the same, 1/n if one was given all."""
    given: Counter[int] = Counter()
    for each in world.spent:
        if since * SECOND <= each.at < world.setup.seconds * SECOND:
            given[each.node] += each.units
    squares = sum(units**2 for units in given.values())
    return sum(given.values()) ** 2 / (world.setup.nodes * squares) if squares else 1.0


def decisions_a_trip(world: World) -> float:
    return world.ledger.asked / max(1, world.trips)


def equal(nodes: int, total: float) -> Phases:
    """Every node is asked alike."""
    return ((0.0, (total / nodes,) * nodes),)


def unequal(nodes: int, total: float) -> Phases:
    """Half of the nodes are asked ten times as often as the others."""
    heavy, light = nodes // 2, nodes - nodes // 2
    one = total / (10 * heavy + light)
    return ((0.0, (10 * one,) * heavy + (one,) * light),)


STORM_LIMITS: Final = (
    "1000/second", "1000/second burst 100", "200/second burst 2000", "50/second", "5000/second burst 500",
    "600/minute burst 300", "1000/second by fixed-window", "300/500ms by fixed-window", "2000/minute by fixed-window",
    "1000/second burst 200; 900/second by fixed-window", "7/70ms burst 13 by leaky-bucket",
)  # fmt: skip


def storm(seed: int) -> Setup:
    """Anything that can go wrong, in any measure."""
    chance = random.Random(f"{seed} storm")
    nodes = chance.choice((2, 5, 5, 10, 10, 20, 50))
    seconds = chance.uniform(1.0, 4.0)
    validity = chance.choice((0.02, 0.1, 0.3, 1.0))
    each = chance.choice((0.2, 0.5, 1, 2, 4)) * 1000 / nodes
    quiet = chance.choice((0.0, 0.3, 0.7))
    starts = [0.0, *sorted(chance.uniform(0, seconds) for _ in range(chance.choice((0, 1, 3, 8, 20))))]
    phases = tuple(
        (start, tuple(0.0 if chance.random() < quiet else each * chance.choice((0.1, 1, 1, 3)) for _ in range(nodes)))
        for start in starts
    )
    return Setup(
        seed=seed,
        limits=chance.choice(STORM_LIMITS),
        lease=Lease(validity=validity, share=chance.choice((0.05, 0.1, 0.5, 1.0)), floor=chance.choice((2, 4, 16))),
        seconds=seconds,
        phases=phases,
        keys=chance.choice((1, 1, 1, 3, 20)),
        zipf=chance.choice((0.0, 1.0)),
        most_cost=chance.choice((1, 1, 1, 3, 10)),
        awaited=chance.choice(("yes", "no", "half")),
        threads=chance.choice((1, 1, 4)),
        latency=chance.choice((0.0001, 0.0005, 0.003, 0.02)),
        loss=chance.choice((0.0, 0.0, 0.01, 0.1)),
        crashes=chance.choice((0.0, 0.0, 0.1, 1.0)),
        partitions=chance.choice((0.0, 0.0, 0.1, 0.5)),
        cut_off=chance.choice((0.1, 2.0)),
        restarts=tuple(chance.uniform(0, seconds) for _ in range(chance.choice((0, 0, 1, 3)))),
        skewed_clocks=chance.random() < 0.8,
        drift_ppm=chance.choice((0, 100)),
        remember=chance.choice((0.0, 1.0, 1.0)),
        greedy=chance.random() < 0.4,
    )


def ambush(seed: int) -> Setup:
    """The worst on purpose: leases are hoarded, given back and bought anew, and then all of them are spent at once."""
    chance = random.Random(f"{seed} ambush")
    rate, validity, nodes = chance.choice((200, 500, 1000)), chance.choice((0.1, 0.3)), chance.choice((3, 8, 16))
    burst = int(rate * validity * chance.choice((0.3, 1, 3, 10)))
    window = f"{burst}/{int(validity * 1000 * chance.choice((1, 3)))}ms by fixed-window"
    touched = chance.choice((0.1, 0.3, 1.0))
    gaps = chance.choice(((0.05, 0.1), (0.05, 0.3, 0.9, 1.0, 2.5)))
    phases: list[tuple[float, tuple[float, ...]]] = []
    at = 0.0
    for _ in range(chance.choice((1, 3))):
        for _ in range(chance.choice((1, 5, 20, 100))):  # a touch makes a greedy node buy
            phases.append((at, tuple(300.0 * (chance.random() < touched) for _ in range(nodes))))
            phases.append((at + 0.004, (0.0,) * nodes))
            at += max(0.005, validity * chance.choice(gaps))
        phases.append((at, (100 * min(1500, burst + rate * validity),) * nodes))
        phases.append((at + 0.01, (0.0,) * nodes))
        at += 0.011 + validity * chance.choice((0.0, 1.0))
    return Setup(
        seed=seed,
        limits=chance.choice((f"{rate}/second burst {burst}",) * 3 + (window,)),
        lease=Lease(validity=validity),
        seconds=at,
        phases=tuple(phases),
        awaited=chance.choice(("yes", "no")),
        latency=0.0001,
        loss=chance.choice((0.0, 0.0, 0.05)),
        crashes=chance.choice((0.0, 0.0, 0.5)),
        cut_off=0.1,
        restarts=(chance.uniform(0, at),) if chance.random() < 0.2 else (),
        skewed_clocks=True,
        drift_ppm=chance.choice((0, 100)),
        remember=chance.choice((0.0, 1.0)),
        greedy=True,
    )


SURGE_LIMITS: Final = (
    "100/second", "200/second burst 20", "50/second burst 400", "500/second", "20/second; 300/minute by fixed-window",
    "5/minute", "100/second by fixed-window",
)  # fmt: skip


def surge(seed: int) -> Setup:
    """One key, from a tenth of its limit to a hundred times it; nodes come and go, and the server is slow or away."""
    chance = random.Random(f"{seed} surge")
    limits, nodes, seconds = chance.choice(SURGE_LIMITS), chance.choice((1, 2, 4, 10, 30)), chance.uniform(1.0, 2.5)
    limit = World(Setup(limits=limits)).limits[0]
    rate = limit.amount / limit.period_us * SECOND
    uneven = [chance.choice((1, 1, 10)) for _ in range(nodes)]
    starts = [0.0, *sorted(chance.uniform(0, seconds) for _ in range(chance.choice((0, 1, 3))))]
    phases = []
    for start in starts:
        load, gone = chance.choice((0.1, 0.5, 1, 2, 5, 20, 100)), chance.choice((0.0, 0.0, 0.5))
        each = [0.0 if chance.random() < gone else load * rate * part / sum(uneven) for part in uneven]
        phases.append((start, tuple(each)))
    return Setup(
        seed=seed,
        limits=limits,
        lease=Lease(validity=chance.choice((0.05, 0.3, 1.0))),
        seconds=seconds,
        phases=tuple(phases),
        most_cost=chance.choice((1, 1, 3)),
        awaited=chance.choice(("yes", "no", "half")),
        threads=chance.choice((1, 4, 16)),
        latency=chance.choice((0.0002, 0.0002, 0.01, 0.03)),
        loss=chance.choice((0.0, 0.0, 0.02)),
        crashes=chance.choice((0.0, 0.0, 0.5)),
        cut_off=0.3,
        restarts=(chance.uniform(0, seconds),) if chance.random() < 0.3 else (),
        stops=((chance.uniform(0, seconds), chance.choice((0.04, 0.4))),) if chance.random() < 0.4 else (),
        skewed_clocks=True,
        drift_ppm=chance.choice((0, 100)),
        remember=chance.choice((0.0, 1.0)),
    )


def trial(seed: int) -> Setup:
    """One of the thousand."""
    return ambush(seed) if seed % 5 == 0 else surge(seed) if seed % 5 == 1 else storm(seed)


def try_out(seed: int, ledger_type: type[LeaseLedger] = LeaseLedger) -> list[str]:
    """Run a trial, and say what is wrong with it."""
    return violations(World(trial(seed), ledger_type).run(close=seed % 2 == 0))


def try_out_sliding(seed: int) -> list[str]:
    """Run a trial of a sliding window, and say what is wrong with it."""
    world = Overloaded(overload(seed)) if seed % 2 else World(sliding(trial(seed // 2)))
    return violations(world.run(close=seed % 4 < 2))
