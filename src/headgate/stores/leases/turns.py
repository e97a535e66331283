"""Turns: the server tells each process when to ask about a key again.

Turns of one key are 0.6 ms apart, so that all processes together ask 1,700 times a second, whatever their number. A
process that is alone with a key has a turn every 20 to 40 ms. Turns come sooner if a bucket would be full between two
of them, or if too much of a sliding window would be idle. A question that no turn announced, such as the first one of a
process, takes the place of a turn too: processes that start together are slow from their second question on.

The queue of turns is one instant at the server, the last turn given out. It needs no count of the processes: with n of
them, each has its turn n * 0.6 ms after its question.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from headgate.clock import SECOND
from headgate.limit import Limit
from headgate.stores.leases.grants import Held
from headgate.stores.leases.terms import ends_with_window

SHORTEST: Final = 20_000
"""The shortest time between two questions of a process, in microseconds: 50 questions a second."""
SPACING: Final = 600
"""The microseconds between two turns: about 1,700 questions a second of all processes."""
UNANNOUNCED: Final = 2
"""The places in the queue that a question takes which no turn announced: for itself, and for its next turn."""
SHARE: Final = 1.25
"""The places whose units a question takes at most, if many processes ask and little is left."""
HALF_PLACES: Final = 3
"""The same of a fixed window, in halves of a place: the time until its end is divided into places."""
ENOUGH: Final = 2
"""A process that wants no more than an equal part takes up to this many times as much of a fixed window: all processes
ask at its beginning, and those that are a little later would be given less than they need, and ask again."""
OF_A_BUCKET: Final = 50
"""Besides, a question takes at most one part in this many of what is left of a bucket."""
OF_A_WINDOW: Final = 2500
"""The same of a sliding window: units that come back together are charged, and come back, less and less together."""
LATE: Final = SECOND
"""A turn is over after this time: a later question is unannounced."""
FARTHEST: Final = 10 * SECOND
"""A turn that is farther away than this and a period was given out by another clock of the server."""
OF_A_BURST: Final = 3
"""A bucket fills to one part in this many between two turns, or to two parts."""
IDLE: Final = 0.02
"""The part of a sliding window that may come back before it is asked for. A bucket keeps such units; a window loses
their time, since a unit that is charged late leaves the window late."""
SPREAD: Final = 256
"""Turns are late by chance, by up to this many 1024ths of the time that they are away."""
MOST_PART: Final = 2**26
"""The largest part: its square is exact on the server."""


class Turns:
    """The turns of the keys of some limits."""

    def __init__(self, limits: tuple[Limit, ...], chance: Callable[[], float] = random.random) -> None:
        self.nodes: int | None = None
        """The number of processes, once it is known."""
        self._chance = chance
        self._least = max(1, int(min(SHORTEST, *map(_least, limits))))
        self._spacing = min(SPACING, self._least)
        self._rates = tuple(_rate(limit, HALF_PLACES) for limit in limits)
        self._more = tuple(_rate(limit, HALF_PLACES * ENOUGH) for limit in limits)
        self._amount = min(limit.amount for limit in limits)
        self._farthest = FARTHEST + max(limit.period_us for limit in limits)
        self._offer = int(min(_offer(limit) * self._spacing * limit.amount / limit.period_us for limit in limits))
        """The tokens that a question for one call takes if many processes ask."""

    @property
    def needed(self) -> bool:
        """Whether single units are asked for with a turn: a fleet of few processes needs turns for tokens only."""
        return self.nodes is None or self.nodes * SPACING > SHORTEST

    def numbers(self, held: Held, ahead: bool, now: int) -> tuple[int, ...]:
        """Return the numbers by which the server gives a turn and shares the units that are left."""
        places = UNANNOUNCED if now > held.turn_us + LATE else 1
        chance = self._chance()  # processes that asked together, or in turn, do not stay so
        held.least = int(self._least * (1 + chance))
        mine = max(0, held.turn_us - now)
        spread = int(chance * SPREAD) if places == 1 else 0
        turn = (places, held.least, self._spacing, spread, mine, self._farthest)
        held.offer = 0 if ahead else self._offer
        modest = ahead and self.nodes is not None and held.wanted * self.nodes <= self._amount
        rates = self._more if modest else self._rates
        return (held.offer, *turn, *(number for rate in rates for number in rate))

    def parts(self, held: Held) -> tuple[int, ...]:
        """Return the units that come back to each limit until the next turn; 0 for a fixed window."""
        return tuple(min(most, held.wait * amount // period) for amount, period, most, _ in self._rates)


def _least(limit: Limit) -> float:
    """Return the time between two turns in which neither a bucket is full nor a window idle for too long."""
    if limit.step.LENDS:
        return limit.burst * limit.period_us / limit.amount / OF_A_BURST
    return limit.period_us * IDLE


def _offer(limit: Limit) -> float:
    """Return the places whose units a first question takes: of a sliding window few, since it loses those left over."""
    return UNANNOUNCED if limit.step.LENDS or ends_with_window(limit) else SHARE


def _rate(limit: Limit, half_places: int) -> tuple[int, int, int, int]:
    """Return the amount and the period, the units up to which the limit is shared, and the questions that share more.

    A fixed window has no rate: it is shared among the turns until its end, and a question takes the units of some.
    """
    if ends_with_window(limit):
        return 0, 1, 0, half_places
    if limit.step.LENDS:
        return limit.amount, limit.period_us, min(MOST_PART, limit.burst), OF_A_BUCKET
    return limit.amount, limit.period_us, int(limit.amount * IDLE) + 1, OF_A_WINDOW
