"""The fourteen overloads on which the constants of the adaptive estimator were chosen."""

from __future__ import annotations

from headgate.clock import MILLISECOND, SECOND
from headgate.lab.overload.scenarios import USUAL, Scenario, flood, lognormal
from headgate.lab.overload.services import Cores, Dependency, Pool, Service
from headgate.lab.overload.world import World

QUICK = lognormal(10, 0.1)


def uneven(world: World) -> float:
    """Nine requests of ten take 10 ms, the tenth 410 ms."""
    return (410 if world.random.random() < 0.1 else 10) * MILLISECOND


def halved(world: World) -> Service:
    """Return a pool that loses half its workers from second 40 to 60."""
    pool = Pool(world, 20, USUAL)
    world.after(40 * SECOND, pool.resize, 10)
    world.after(60 * SECOND, pool.resize, 20)
    return pool


def slow_dependency(world: World) -> Service:
    """Return a service whose dependency takes 10 ms, and 500 ms from second 20 to 60."""
    service = Dependency(world, Pool(world, 20, USUAL), QUICK)
    world.after(20 * SECOND, setattr, service, "work", lognormal(500, 0.1))
    world.after(60 * SECOND, setattr, service, "work", QUICK)
    return service


def hanging(world: World, end: int = 40, patience: int = SECOND) -> Service:
    """Return a service whose dependency does not answer from second 20 on."""
    service = Dependency(world, Pool(world, 20, USUAL), QUICK, patience)
    world.after(20 * SECOND, setattr, service, "work", lambda world: end * SECOND - world.us + 10 * MILLISECOND)
    world.after(end * SECOND, setattr, service, "work", QUICK)
    return service


KNOWN = (
    flood("flood-5x", "5 times the peak", 5),
    flood("flood-10x", "10 times the peak", 10),
    flood(
        "cores",
        "5 ms of processor time on 2 shared cores, 5 times",
        5,
        400,
        lambda w: Cores(w, 2, lognormal(5)),
        lognormal(5),
    ),
    flood(
        "thrashing",
        "each waiting request slows the others by 1 %, 5 times",
        5,
        build=lambda w: Pool(w, 20, USUAL, thrash=0.01),
    ),
    flood(
        "uneven",
        "9 of 10 requests take 10 ms, the tenth 410 ms, 5 times",
        5,
        build=lambda w: Pool(w, 20, uneven),
        unloaded=uneven,
    ),
    flood(
        "slow-few",
        "4 workers, 500 ms, 5 times",
        5,
        8,
        lambda w: Pool(w, 4, lognormal(500)),
        lognormal(500),
        10 * SECOND,
    ),
    flood("wide", "200 workers, 5 times", 5, 4000, lambda w: Pool(w, 200, USUAL)),
    Scenario(
        "capacity-halved",
        "half of the workers are away for 20 s, 3 times",
        load=((20, 280), (60, 1200), (20, 280)),
        measured=((30, 40, 400), (50, 60, 200), (70, 80, 400)),
        recovered=80,
        build=halved,
    ),
    Scenario(
        "slow-dependency",
        "a dependency takes 500 ms in place of 10 ms, 0.8 times",
        load=((80, 320),),
        measured=((30, 60, 320),),
        recovered=60,
        build=slow_dependency,
        unloaded=lambda w: USUAL(w) + lognormal(500, 0.1)(w),
    ),
    Scenario("cold", "3 times from the first request", ((30, 1200), (20, 280)), ((10, 30, 400),), 30),
    Scenario(
        "long",
        "4 workers, 2 times for 15 minutes",
        load=((900, 160), (20, 56)),
        measured=((60, 900, 80),),
        recovered=900,
        build=lambda w: Pool(w, 4, USUAL),
    ),
    Scenario(
        "hang",
        "a dependency hangs for 20 s, and requests give up after 1 s, 0.8 times",
        load=((60, 320),),
        measured=((50, 60, 320),),
        recovered=40,
        build=hanging,
        unloaded=lambda w: USUAL(w) + QUICK(w),
    ),
    Scenario(
        "closed",
        "400 clients that wait for their answers",
        ((40, 0),),
        ((10, 40, 400),),
        closed=(400, 100 * MILLISECOND),
    ),
    Scenario(
        "retries",
        "3 times for 5 s, and each refusal is retried 3 times at once",
        load=((20, 280), (5, 1200), (35, 280)),
        measured=((22, 25, 400),),
        recovered=25,
        retries=3,
    ),
)
