"""The report of a budget: counts that only grow, and the limits that it knows."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from headgate.client.counts import Counter
from headgate.forks import after_fork
from headgate.limit import Limit
from headgate.wording import log_of

log = log_of("headgate.client")


class Event(NamedTuple):
    """One thing that a budget did, for `on_event`."""

    kind: str
    """`wait`, `retry`, `pause`, `learn`, `refuse` (here) or `refused` (by the server)."""
    key: str
    seconds: float = 0.0
    """The seconds of the wait or the pause; for `refuse`, the seconds until a retry is useful."""
    reason: str = ""
    """Why a call waits or is refused; for `learn`, the limits."""


@dataclass(frozen=True)
class Report:
    """The counts of a budget since it was made."""

    sent: int = 0
    """Attempts that were sent, retries included."""
    waited: float = 0.0
    """Seconds that calls waited for their turn, all together."""
    retried: int = 0
    refused_here: int = 0
    """Calls that were not sent, or given up, with `BudgetExhausted`."""
    refused_there: int = 0
    """Answers of the server that refused a request by its limits."""
    paused: int = 0
    """The number of pauses of keys."""
    learned: Mapping[str, tuple[Limit, ...]] = field(default_factory=dict)
    """By key: the server's limits, where it has told other ones than were published."""
    units: Mapping[str, int] = field(default_factory=dict)
    """The real use of calls that told it, by unit: `tokens`, `input_tokens`, ..."""


class Tally:
    """The counts of one budget, and its listener."""

    def __init__(self, on_event: Callable[[Event], object] | None) -> None:
        self._sent, self._sent_before = Counter(), 0
        self.sent = self._sent.add
        """Counts an attempt that is sent."""
        self.retried = self.refused_here = self.refused_there = self.paused = 0
        self.waited = 0.0
        self.units: dict[str, int] = {}
        self._on_event = on_event
        self._renew()
        after_fork(self._renew)

    def _renew(self) -> None:
        self._lock = threading.Lock()

    def add(self, name: str, number: float = 1) -> None:
        """Add to a count; `+=` alone loses additions of other threads."""
        with self._lock:
            setattr(self, name, getattr(self, name) + number)

    def use(self, units: Mapping[str, int]) -> None:
        """Add the real use of a call."""
        with self._lock:
            for name, number in units.items():
                self.units[name] = self.units.get(name, 0) + number

    def tell(self, kind: str, key: str, seconds: float = 0.0, reason: str = "") -> None:
        """Tell the listener. Its errors are logged: a request must not be lost, nor a charge kept, for their sake."""
        if self._on_event is not None:
            try:
                self._on_event(Event(kind, key, seconds, reason))
            except Exception:
                log.exception("on_event of a budget failed")

    def report(self, learned: Mapping[str, tuple[Limit, ...]]) -> Report:
        """Return the counts as they are now."""
        with self._lock:
            self._sent_before += self._sent.since()
            return Report(
                self._sent_before, self.waited, self.retried, self.refused_here, self.refused_there, self.paused,
                dict(learned), dict(self.units),
            )  # fmt: skip
