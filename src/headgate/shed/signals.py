"""Signals of how busy the workers of this process are, from 0 to 1; the busiest signal counts.

| signal | measures |
|---|---|
| `busy` | requests in flight, as a part of the limit |
| `cpu` | processor time of this process, as a part of one core: a Python process computes on one |
| `loop_lag` | the longest time that a request sat in the event loop, as a part of 100 ms |
| `queue` | the longest time that a request waited before this process, as a part of 100 ms |
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from headgate.clock import MILLISECOND
from headgate.errors import InvalidCall
from headgate.wording import log_of, shown

NAMES = ("busy", "cpu", "loop_lag", "queue")
LONG = 100 * MILLISECOND
Signal = str | Callable[[], float]


class Signals:
    """The signals that a worker shedder follows."""

    def __init__(self, signals: Sequence[Signal]) -> None:
        if isinstance(signals, str) or not signals:
            raise InvalidCall(f"signals are a list of {', '.join(NAMES)} or functions; got {shown(signals)}")
        for signal in signals:
            if not callable(signal) and signal not in NAMES:
                raise InvalidCall(f"unknown signal {shown(signal)}: the signals are {', '.join(NAMES)}, or a function")
        self._signals = tuple(signals)
        self._failed: set[int] = set()
        """The ids of functions that could not be read when they were asked last."""
        self._read_at = time.perf_counter_ns(), time.process_time_ns()

    def read(self, busy: float, loop_lag: int, queue: int) -> float:
        """Return how busy the workers are; the two times are in microseconds."""
        readings = {
            "busy": _bounded(busy),
            "cpu": _bounded(self._cpu()) if "cpu" in self._signals else 0.0,
            "loop_lag": _bounded(loop_lag / LONG),
            "queue": _bounded(queue / LONG),
        }
        return max(readings[each] if isinstance(each, str) else self._ask(each) for each in self._signals)

    def _ask(self, function: Callable[[], float]) -> float:
        """Return the answer of a function; 0 if it has none: a broken gauge must not fail requests."""
        try:
            use = function()
            answer = _bounded(use)
            if use != use:  # a nan, as of a gauge that has measured nothing
                raise ValueError(f"expected a number from 0 to 1; got {shown(use)}")
        except Exception:
            if id(function) not in self._failed:
                self._failed.add(id(function))
                log_of(__name__).warning(
                    "the signal %s of busy workers could not be read, and counts as 0", shown(function), exc_info=True
                )
            return 0.0
        self._failed.discard(id(function))
        return answer

    def _cpu(self) -> float:
        (wall, used), self._read_at = self._read_at, (time.perf_counter_ns(), time.process_time_ns())
        return (self._read_at[1] - used) / max(1, self._read_at[0] - wall)


def _bounded(use: float) -> float:
    return min(1.0, max(0.0, use))
