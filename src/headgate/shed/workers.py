"""The worker shedder: it sheds class after class while the workers of this process stay busy.

The rule is Stripe's (Tarjan, "Scaling your API with rate limiters", 2017), for a use between 0 and 1:

    pressure(use) = use/0.7 - 1       below 0.7: room, the amount falls
                    0                 from 0.7 to 0.8
                    (use - 0.8)/0.2   above: the amount rises
    amount += min(time since the last look, 28 s) x pressure / 120 s

Full use sheds nothing for 28 s, so that a short peak passes, and all requests of the lowest class 120 s later. The
amount goes on to the next class after that. Critical classes are never shed here.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import random

from headgate.clock import SECOND
from headgate.shed.classes import Classes
from headgate.shed.signals import Signal, Signals

PATIENCE = 28 * SECOND
WHOLE = 120 * SECOND
LOOK = SECOND
"""How often the signals are read."""


def pressure(use: float) -> float:
    """Return how much too busy the workers are, from -1 (idle) to 1."""
    if use < 0.7:
        return max(-1.0, use / 0.7 - 1)
    return 0.0 if use <= 0.8 else min(1.0, (use - 0.8) / 0.2)


class Amount:
    """The amount of load to shed: 1 is all of the lowest class, 2 also all of the next."""

    def __init__(self, classes: int) -> None:
        self.value = -PATIENCE / WHOLE
        self._most = float(classes)
        self._looked: int | None = None

    def follow(self, now: int, use: float) -> None:
        """Rise or fall by the use of the workers since the last call."""
        passed = 0 if self._looked is None else min(now - self._looked, PATIENCE)
        self._looked = now
        self.value = max(-PATIENCE / WHOLE, min(self._most, self.value + passed * pressure(use) / WHOLE))


class Workers:
    """The worker shedder of one process."""

    def __init__(self, signals: Sequence[Signal], classes: Classes) -> None:
        self.queue = 0
        """The longest that a request waited before this process since the last look, in microseconds."""
        self._loop_lag = 0
        self._signals = Signals(signals)
        self._amount = Amount(len(classes.order) - classes.critical)
        self._next_look = 0

    def look(self, now: int, loop_delay: int, busy: float) -> None:
        """Note how busy the workers are; read the signals about once a second."""
        self._loop_lag = max(self._loop_lag, loop_delay)
        if now >= self._next_look:
            self._next_look = now + LOOK
            self._amount.follow(now, self._signals.read(busy, self._loop_lag, self.queue))
            self._loop_lag = self.queue = 0

    def sheds(self, height: int) -> bool:
        """Return whether to shed a request; 0 is the height of the lowest class."""
        return random() < self._amount.value - height  # noqa: S311 - chooses requests, keeps no secret
