"""Seven overloads that were written when the constants of the adaptive estimator were fixed, as a check."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from headgate.clock import SECOND
from headgate.lab.overload.known import QUICK, hanging, uneven
from headgate.lab.overload.scenarios import PEAK, USUAL, Scenario, flood, lognormal
from headgate.lab.overload.services import Cores, Pool, Service, Work
from headgate.lab.overload.world import World


def changing(after: Work) -> Callable[[World], Service]:
    """Return a service whose work changes in second 40, as after a deployment."""

    def build(world: World) -> Service:
        pool = Pool(world, 20, USUAL)
        world.after(40 * SECOND, setattr, pool, "work", after)
        return pool

    return build


def uneven_cpu(world: World) -> float:
    """Nine requests of ten take 2 ms, the tenth 82 ms."""
    return uneven(world) / 5


UNSEEN = (
    Scenario(
        "stuck",
        "a dependency hangs for 15 s, in an app without timeouts, 0.8 times",
        load=((60, 320),),
        measured=((45, 60, 320),),
        recovered=35,
        build=partial(hanging, end=35, patience=3600 * SECOND),
        unloaded=lambda w: USUAL(w) + QUICK(w),
    ),
    flood(
        "uneven-cores", "4 shared cores, uneven work, 4 times", 4, 400, lambda w: Cores(w, 4, uneven_cpu), uneven_cpu
    ),
    Scenario(
        "ramp",
        "from 0.5 to 4 times within 75 s",
        load=(*((5, PEAK * (0.5 + 0.25 * step)) for step in range(15)), (20, 280)),
        measured=((20, 75, 400),),
        recovered=75,
    ),
    Scenario(
        "faster",
        "a deployment makes the service 3 times as fast, 5 times",
        load=((20, 280), (50, 2000), (20, 280)),
        measured=((30, 40, 400), (55, 70, 1200)),
        recovered=70,
        build=changing(lognormal(50 / 3)),
        unloaded=lognormal(50 / 3),
    ),
    Scenario(
        "slower",
        "a deployment makes the service half as fast, 1.5 times",
        load=((20, 280), (60, 600), (20, 140)),
        measured=((30, 40, 400), (50, 80, 200)),
        recovered=80,
        build=changing(lognormal(100)),
        unloaded=lognormal(100),
    ),
    Scenario(
        "bursts",
        "every 5 s a second of 10 times",
        load=((20, 200), *((1, 4000), (4, 200)) * 8),
        measured=((25, 60, 240),),
    ),
    flood(
        "one-worker",
        "1 worker, 200 ms, 3 times",
        3,
        5,
        lambda w: Pool(w, 1, lognormal(200)),
        lognormal(200),
        5 * SECOND,
    ),
)
