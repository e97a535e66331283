"""Bound limits whose windows have seams of their own: the calendar's, or those of each key.

A step knows neither calendars nor keys. Its parameters have the instants at which the windows around now begin, so the
limits are bound again when their window is over. Between two seams a decision compares two integers, and no database
of zones is read.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from headgate.caches import ClearedWhenFull
from headgate.clock import Clock
from headgate.engine import TAKE
from headgate.limit import Limit, phase_of
from headgate.stores.contract import Costs, Keys, Marks

Limits = tuple[Limit, ...]
Bind = Callable[[Limits], Any]
REMEMBERED: Final = 16_384
"""The most keys whose phases are kept."""
MOST_PLACED: Final = 1024
"""The most combinations of phases whose limits stay bound."""
UNBOUND: Final = (0, 0, None)


def bind_placed(clock: Clock, namespace: str, limits: Limits, bind: Bind) -> Any:  # noqa: ANN401 - of either kind
    """Bind limits; those with seams of their own are bound again for each window."""
    for limit in limits:
        if limit.calendar or limit.scattered:
            return PlacedLimits(clock, namespace, limits, bind)
    return bind(limits)


class PlacedLimits:
    """Limits that are bound for the windows around now. Methods return what those of the bound limits return."""

    def __init__(self, clock: Clock, namespace: str, limits: Limits, bind: Bind) -> None:
        self.limits = limits
        self._clock = clock
        self._bind = bind
        self._phase = _phases_in(namespace) if any(limit.scattered for limit in limits) else _no_phase
        self._placed: ClearedWhenFull[tuple[int, ...], tuple[int, int, Any]] = ClearedWhenFull(MOST_PLACED)
        """By the phases of keys: from when and until when limits are bound as they are, and the bound limits."""

    def run(self, keys: Keys, costs: Costs, mode: int = TAKE, wait: int = 0) -> Any:  # noqa: ANN401
        """Ask every limit in one step, then charge all or none."""
        return self._bound(keys).run(keys, costs, mode, wait)

    def give(self, keys: Keys, units: Costs, marks: Marks) -> Any:  # noqa: ANN401
        """Give back units that were charged at these marks."""
        return self._bound(keys).give(keys, units, marks)

    def clear(self, key: str) -> Any:  # noqa: ANN401
        """Forget a key under every limit."""
        return self._bound(key).clear(key)

    def holders(self, key: str) -> Any:  # noqa: ANN401
        """Return the permits in flight of a key."""
        return self._bound(key).holders(key)

    def records(self, key: str) -> Any:  # noqa: ANN401
        """Return the record of a key under each limit."""
        return self._bound(key).records(key)

    def _bound(self, keys: Keys) -> Any:  # noqa: ANN401
        now = self._clock.now_us()
        phases = (self._phase(keys),) if isinstance(keys, str) else tuple(map(self._phase, keys))
        since, until, bound = self._placed.get(phases, UNBOUND)
        if not since <= now < until:
            since, until, bound = self._placed.keep(phases, self._place(now, phases))
        return bound

    def _place(self, now: int, phases: tuple[int, ...]) -> tuple[int, int, Any]:
        each = phases * len(self.limits) if len(phases) == 1 else phases
        seams = [limit._seams_at(now, phase) for limit, phase in zip(self.limits, each, strict=True)]
        pairs = zip(self.limits, seams, strict=True)
        bound = self._bind(tuple([limit._placed(some) if some else limit for limit, some in pairs]))
        return max(some[1] for some in seams if some), min(some[2] for some in seams if some), bound


def _no_phase(key: str) -> int:
    return 0


def _phases_in(namespace: str) -> Callable[[str], int]:
    return lru_cache(REMEMBERED)(lambda key: phase_of(namespace, key))
