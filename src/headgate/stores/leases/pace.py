"""How often a process asks about a key of which too little is left, and its refusals between two questions.

A server that grants less than was asked for is asked again after a tick: 20 ms, or 0.5 ms for each node if that is
more, so that the nodes ask 2,000 times a second about one key, whatever their number. A tick is shorter if a bucket
would be full before its end, or if too much of a sliding window would be idle. A fixed window has no tick: its units
come back all at once.

A limit that is low is shared among the nodes that ask: of `left` units a question takes left * left / part, `part`
being what comes back in a tick. That needs no count of these nodes: a single one finds a whole part and takes it; of n
nodes each finds part / sqrt(n) and takes part / n. The order in which nodes ask must change, since the first after a
pause finds more than the others: between two questions there are one to two ticks, by chance.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final, NamedTuple

from headgate.algorithms import NEVER, Verdict
from headgate.engine import Decision
from headgate.limit import Limit
from headgate.stores.leases.grants import Held
from headgate.stores.leases.terms import ends_with_window

SHORTEST: Final = 20_000
"""The shortest tick, in microseconds: 50 questions a second."""
OF_A_NODE: Final = 500
"""The part of a tick for each node, in microseconds: 2,000 questions a second of all nodes."""
MOST_PART: Final = 2**26
"""The largest part: its square is exact on the server."""
IDLE: Final = 0.02
"""The part of a sliding window that may come back before it is asked for. A bucket keeps such units; a window loses
their time, since a unit that is charged late leaves the window late."""
OF_A_PERIOD: Final = 20
"""The longest tick of a sliding window is its period divided by this number: tokens that are held for a large part of
the period, and then given back, are lost to the window."""


class Row(NamedTuple):
    """The answer of one limit to calls that are refused, as of the instant of the question."""

    allowed: bool
    remaining: int
    retry_us: int
    reset_us: int


class Pause(NamedTuple):
    """The time until the next question about a key: calls are refused without one."""

    since_us: int
    until_us: int
    refused: int
    """Calls of this cost and of larger ones are refused."""
    cost: int
    """The cost to which the retries of the rows belong."""
    rows: tuple[Row, ...]

    def decision(self, limits: tuple[Limit, ...], key: str, units: int, now: int) -> Decision:
        """Return the refusal of a call: no retry is before the next question, nor before the bucket has the units."""
        age, least = now - self.since_us, self.until_us - now
        answers: list[int] = []
        for limit, row in zip(limits, self.rows, strict=True):
            allowed, remaining, retry, reset = row
            if units > limit.burst:
                allowed, retry = False, NEVER
            elif not allowed:
                retry = max(least, retry - age + _more_time(limit, units - self.cost, retry))
            answers += (allowed, remaining, retry, max(0, reset - age), 0, 0)
        return Decision(limits, key, (units,) * len(limits), answers)


class Pace:
    """The pace of the questions about the keys of some limits."""

    def __init__(self, limits: tuple[Limit, ...], chance: Callable[[], float] = random.random) -> None:
        self.nodes = 1
        self._limits = limits
        self._chance = chance
        self._regained = tuple(at for at, limit in enumerate(limits) if not ends_with_window(limit))
        """The indexes of the limits whose units come back little by little: buckets and sliding windows."""
        sliding = (limits[at].period_us // OF_A_PERIOD for at in self._regained if not limits[at].step.LENDS)
        self._longest = min(sliding, default=None)

    def refused(self, held: Held, key: str, units: int, missed: int, now: int) -> Decision | None:
        """Return a refusal until the next question; None if it is time for it, or if fewer units may still be there."""
        pause = held.pause
        if pause is None or units < pause.refused or now < pause.since_us:
            return None
        if now >= pause.until_us:
            if held.asking is None:
                return None
            pause = pause._replace(until_us=now + held.tick)  # the server is slow: one question at a time
        held.missed += missed
        return pause.decision(self._limits, key, units, now)

    def parts(self, held: Held) -> tuple[int, ...]:
        """Return the units that come back to each limit in a tick; 0 for a fixed window."""
        return tuple(
            self._part(limit, held.tick) if at in self._regained else 0 for at, limit in enumerate(self._limits)
        )

    @staticmethod
    def _part(limit: Limit, tick: int) -> int:
        return min(MOST_PART if limit.step.LENDS else _idle(limit), tick * limit.amount // limit.period_us)

    def see(self, held: Held, decision: Decision, wanted: int, now: int) -> None:
        """Note whether the server had less than was wanted; then calls are refused until the next question."""
        verdicts, granted = decision.verdicts, decision.granted
        if held.short and decision.allowed and not wanted:
            held.tick = min(
                self._tick(), 2 * held.tick
            )  # it was too short for more than a unit, or there are more nodes
            return  # one unit is no sign of plenty; and another caller may have heard more since
        if not self._regained or (decision.allowed and granted >= wanted):
            held.tick, held.short, held.pause, held.lefts = self._tick(), False, None, ()
            return
        held.tick = self._shortened(held, verdicts, granted, now)
        if held.pause is not None and now < held.pause.until_us:
            until = held.pause.until_us  # as callers were told while the server was asked
        else:
            until = now + self._spread(held.tick)
        held.short, held.lefts, held.lefts_us = True, tuple(verdict.remaining for verdict in verdicts), now
        if decision.allowed:
            least = min(verdict.remaining for verdict in verdicts)
            rows = tuple(map(_after_grant, self._limits, verdicts, (each.remaining > least for each in verdicts)))
            held.pause = Pause(now, until, 1, 1, rows)
        else:
            cost = decision.calls[0].cost
            fits = min(verdict.remaining for verdict in verdicts if not verdict.allowed)
            held.pause = Pause(now, until, fits + 1, cost, tuple(Row(*verdict[:4]) for verdict in verdicts))

    def _tick(self) -> int:
        """Return the tick of a fleet of this size."""
        tick = max(SHORTEST, self.nodes * OF_A_NODE)
        return tick if self._longest is None else max(1, min(tick, self._longest))

    def _shortened(self, held: Held, verdicts: tuple[Verdict, ...], granted: int, now: int) -> int:
        """Return a tick in which half of a bucket stays empty, if it goes on to fill as it did since the last one.

        In a tick of a sliding window one question takes the part of it that may be idle, if as much comes back as did
        since the last one; the tick of a single node is as long as that part needs, whatever the number of the nodes.
        """
        tick = float(self._tick())
        last = held.tick if held.short else tick
        for at in self._regained:
            limit, left = self._limits[at], verdicts[at].remaining
            if not limit.step.LENDS:
                fitting = last * min(2.0, max(0.5, _idle(limit) / max(1, granted)))
                tick = min(tick, max(limit.period_us * IDLE, fitting))
                continue
            filling = limit.amount / limit.period_us
            if held.lefts and now > held.lefts_us and left + granted < limit.burst:
                filling = (left + granted - held.lefts[at]) / (now - held.lefts_us)
            if filling > 0:
                tick = min(tick, (limit.burst - left) / filling / 2)
        return max(1, int(tick))

    def renew(self, held: Held, now: int) -> None:
        """Refuse other callers while the server is asked."""
        if held.pause is not None:
            held.pause = held.pause._replace(until_us=now + self._spread(held.tick))

    def _spread(self, tick: int) -> int:
        """Return a time from one tick to two: nodes that ran short together, or asked in turn, do not stay so."""
        return int(tick * (1 + self._chance()))


def _idle(limit: Limit) -> int:
    """Return the units of a sliding window that may come back before they are asked for."""
    return int(limit.amount * IDLE) + 1


def _after_grant(limit: Limit, verdict: Verdict, allowed: bool) -> Row:
    """Return the answer to the calls that come after the granted tokens are spent."""
    if allowed:
        return Row(True, verdict.remaining, 0, verdict.reset_us)
    if limit.step.LENDS:
        retry = verdict.reset_us - limit.burst * limit.period_us // limit.amount + _time_of(limit, 1)
    else:
        retry = verdict.reset_us if ends_with_window(limit) and not verdict.remaining else 0
    return Row(False, 0, max(0, retry), verdict.reset_us)


def _more_time(limit: Limit, units: int, retry: int) -> int:
    """Return the time to add to the retry of a cost, for a cost that is larger by these units, or smaller.

    The fewer units of a smaller cost may come back to a sliding window at any time: the next question tells.
    """
    if limit.step.LENDS:
        return _time_of(limit, units)
    return -retry if units < 0 and not ends_with_window(limit) else 0


def _time_of(limit: Limit, units: int) -> int:
    """Return the microseconds in which these units come back to a bucket, rounded up."""
    return -(-units * limit.period_us // limit.amount)
