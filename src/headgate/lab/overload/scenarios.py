"""The overloads: a service, the load on it, and the seconds that count.

Unless a scenario says otherwise: 20 workers, 50 ms of work on average (lognormal, coefficient of variation 1), hence a
peak of 400 requests a second; 0.7 of that before and after; clients wait for at most one second.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headgate.clock import MILLISECOND, SECOND
from headgate.lab.overload.services import Pool, Service, Work
from headgate.lab.overload.world import World

PEAK = 400


def lognormal(milliseconds: float, variation: float = 1.0) -> Work:
    """Work with this mean."""
    return lambda world: world.lognormal(milliseconds * MILLISECOND, variation)


USUAL = lognormal(50)


def usual(world: World) -> Service:
    """Return the service of most scenarios."""
    return Pool(world, 20, USUAL)


@dataclass(frozen=True)
class Stream:
    """Requests of one class and tenant, a part of the load."""

    part: float
    request_class: str = "sheddable_plus"
    tenant: str = ""


@dataclass(frozen=True)
class Scenario:
    """An overload, and how it is measured."""

    name: str
    about: str
    load: tuple[tuple[int, float], ...]
    """Seconds, and requests a second."""
    measured: tuple[tuple[int, int, float], ...]
    """First second, end, and the requests a second that could be served."""
    recovered: int | None = None
    """The second in which the overload ends."""
    build: Callable[[World], Service] = usual
    unloaded: Work = USUAL
    """The latency of a request that is alone, in the measured seconds."""
    timeout: int = SECOND
    """The time for which a client waits for its answer."""
    retries: int = 0
    closed: tuple[int, int] | None = None
    """Clients that wait for their answers, and their mean time between calls; in place of `load`."""
    streams: tuple[Stream, ...] = (Stream(1),)
    """The streams into which the load is divided."""
    wait: float | None = None
    """Seconds that a request waits for a permit."""

    @property
    def seconds(self) -> int:
        """The length of the scenario."""
        return sum(seconds for seconds, _ in self.load)


def flood(
    name: str,
    about: str,
    factor: float,
    peak: float = PEAK,
    build: Callable[[World], Service] = usual,
    unloaded: Work = USUAL,
    timeout: int = SECOND,
) -> Scenario:
    """Return a scenario with half a minute of `factor` times the peak between two quiet times."""
    quiet = 0.7 * peak
    return Scenario(
        name,
        about,
        load=((20, quiet), (30, factor * peak), (20, quiet)),
        measured=((30, 50, peak),),
        recovered=50,
        build=build,
        unloaded=unloaded,
        timeout=timeout,
    )
