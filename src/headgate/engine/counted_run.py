"""CountedRun: decisions over the limits of some rules, counted for each rule. counted_run.pxi is the native twin."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from headgate.engine.choice import NATIVE, Decider, Decision, Tally
from headgate.engine.tally import ALLOWED

Keys = str | tuple[str, ...]
NEVER_DUE: Final = 2**62
"""The instant of a run that needs no look before its decisions."""


class Counting(NamedTuple):
    """The counts that the decisions of a run are added to."""

    admitting: tuple[Tally, ...]
    """The tally of each rule, which counts an admitted request once, whatever the number of its limits."""
    refusing: tuple[tuple[Tally, int], ...]
    """For each limit: the tally of its rule, and the number that counts a refusal by this limit."""
    on_refusal: Callable[[Decision], object]
    """Called with each refusal."""
    on_sample: Callable[[Keys], int]
    """Called with the keys of some decisions; returns the number of decisions until its next call."""
    on_due: Callable[[Any], object]
    """Called with the run before a decision at its `due` instant or later. It sets the next one, or raises."""
    now_us: Callable[[], int]
    """The clock of `due`."""


class CountedRun:
    """Limits bound to their states, whose decisions are counted. A decision that raises counts nothing."""

    def __init__(self, bound: Any, counting: Counting) -> None:  # noqa: ANN401 - bound limits of any store
        self._run = bound.run
        self._admitting, self._refusing, self._on_refusal, self._on_sample, self._on_due, self._now_us = counting
        self._left = 1
        self.due = 0

    def run(self, keys: Keys, costs: tuple[int, ...]) -> Decision:
        """Decide, with a cost for each limit, and count the decision."""
        if self.due != NEVER_DUE and self._now_us() >= self.due:
            self._on_due(self)
        decision: Decision = self._run(keys, costs)
        if decision.allowed:
            for tally in self._admitting:
                tally.add(ALLOWED)
        else:
            tally, number = self._refusing[decision._bound]
            tally.add(number)
            self._on_refusal(decision)
        self._left -= 1  # another thread may do so too: the next sample comes a decision later
        if self._left <= 0:
            self._left = self._on_sample(keys)
        return decision


def run_counted(bound: Any, counting: Counting) -> Callable[[Keys, tuple[int, ...]], Decision]:  # noqa: ANN401
    """Return the counted `run` of these bound limits."""
    made: Any = CountedRun
    if NATIVE and type(bound) is Decider:
        made = importlib.import_module("headgate.engine.native").CountedRun
    run: Callable[[Keys, tuple[int, ...]], Decision] = made(bound, counting).run
    return run
