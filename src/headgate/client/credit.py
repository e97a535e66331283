"""Units that were reserved and not used, kept for the next calls of this process.

A store can give back only what has not been promised to calls behind: where calls always wait, nothing. If the next
call in line is charged less by as many units, that is the same give-back.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Final

from headgate.clock import SECOND
from headgate.forks import after_fork

LASTS: Final = 2 * SECOND
"""Units that no call has taken after this time are lost: a limit that was idle meanwhile has forgotten them."""


class Credit:
    """The credit of one key; safe for threads. Times are in microseconds."""

    def __init__(self) -> None:
        self._renew()
        after_fork(self._renew)

    def _renew(self) -> None:
        """A forked child has no credit: its parent spends it."""
        self._lock = threading.Lock()
        self._units: dict[str, int] = {}
        self._kept_us = 0

    def keep(self, units: Mapping[str, int], now: int) -> None:
        """Keep units for the next calls."""
        if not units:
            return
        with self._lock:
            if now - self._kept_us > LASTS:
                self._units.clear()
            for name, number in units.items():
                self._units[name] = self._units.get(name, 0) + number
            self._kept_us = now

    def spend(self, costs: Mapping[str, int], now: int) -> Mapping[str, int]:
        """Return by how much these costs are paid already. A call is still charged 1, so it waits as all others do."""
        if not self._units:
            return {}
        with self._lock:
            if now - self._kept_us > LASTS:
                self._units.clear()
            spent = {name: min(kept, costs.get(name, 0) - 1) for name, kept in self._units.items()}
            spent = {name: units for name, units in spent.items() if units > 0}
            for name, units in spent.items():
                self._units[name] -= units
            return spent
