"""How often a process asks about a key of which too little is left, and its refusals between two questions.

A server that grants less than was asked for is asked again after a tick: 20 ms, or 0.5 ms for each node if that is
more, so that the nodes ask 2,000 times a second about one key, whatever their number. A tick is shorter if a bucket
would be full before its end.

A bucket that is low is shared among the nodes that ask: of `left` units a question takes left * left / part, `part`
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

SHORTEST: Final = 20_000
"""The shortest tick, in microseconds: 50 questions a second."""
OF_A_NODE: Final = 500
"""The part of a tick for each node, in microseconds: 2,000 questions a second of all nodes."""
MOST_PART: Final = 2**26
"""The largest part: its square is exact on the server."""


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
                retry = max(least, retry - age + (_time_of(limit, units - self.cost) if units != self.cost else 0))
            answers += (allowed, remaining, retry, max(0, reset - age), 0, 0)
        return Decision(limits, key, (units,) * len(limits), answers)


class Pace:
    """The pace of the questions about the keys of some limits."""

    def __init__(self, limits: tuple[Limit, ...], chance: Callable[[], float] = random.random) -> None:
        self.nodes = 1
        self._limits = limits
        self._chance = chance
        self._buckets = tuple(at for at, limit in enumerate(limits) if limit.step.LENDS)

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
        """Return the units that come back to each bucket in a tick; 0 for other limits."""
        return tuple(
            min(MOST_PART, held.tick * limit.amount // limit.period_us) if limit.step.LENDS else 0
            for limit in self._limits
        )

    def see(self, held: Held, decision: Decision, wanted: int, now: int) -> None:
        """Note whether the server had less than was wanted; then calls are refused until the next question."""
        verdicts, granted = decision.verdicts, decision.granted
        if held.short and decision.allowed and not wanted:
            return  # one unit is no sign of plenty; and another caller may have heard more since
        held.tick = max(SHORTEST, self.nodes * OF_A_NODE)
        if not self._buckets or (decision.allowed and granted >= wanted):
            held.short, held.pause, held.lefts = False, None, ()
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

    def _shortened(self, held: Held, verdicts: tuple[Verdict, ...], granted: int, now: int) -> int:
        """Return a tick in which half of a bucket stays empty, if it goes on to fill as it did since the last one."""
        tick = float(held.tick)
        for at in self._buckets:
            limit, left = self._limits[at], verdicts[at].remaining
            filling = limit.amount / limit.period_us
            if held.lefts and now > held.lefts_us and left + granted < limit.burst:
                filling = (left + granted - held.lefts[at]) / (now - held.lefts_us)
            if filling > 0:
                tick = min(tick, (limit.burst - left) / filling / 2)
        return max(1, int(tick))

    def renew(self, held: Held, now: int) -> None:
        """Refuse other callers while the server is asked."""
        if held.pause is not None:
            rows = tuple(row._replace(retry_us=0) for row in held.pause.rows)
            held.pause = held.pause._replace(since_us=now, until_us=now + self._spread(held.tick), rows=rows)

    def _spread(self, tick: int) -> int:
        """Return a time from one tick to two: nodes that ran short together, or asked in turn, do not stay so."""
        return int(tick * (1 + self._chance()))


def _after_grant(limit: Limit, verdict: Verdict, allowed: bool) -> Row:
    """Return the answer to the calls that come after the granted tokens are spent."""
    if allowed:
        return Row(True, verdict.remaining, 0, verdict.reset_us)
    if limit.step.LENDS:
        retry = verdict.reset_us - limit.burst * limit.period_us // limit.amount + _time_of(limit, 1)
    else:
        retry = 0 if verdict.remaining else verdict.reset_us
    return Row(False, 0, max(0, retry), verdict.reset_us)


def _time_of(limit: Limit, units: int) -> int:
    """Return the microseconds in which these units come back, rounded up; 0 for a window, which ends when it ends."""
    return -(-units * limit.period_us // limit.amount) if limit.step.LENDS else 0
