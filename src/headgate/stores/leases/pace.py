"""The refusals of a process between two questions about a key.

A process that was granted less than it wanted refuses calls until its turn; and so does one that has spent its tokens,
if many others ask about the key. `turns.py` has the numbers by which the server gives out turns.

A limit that is low is shared among the processes that ask: of `left` units a question takes left * left / part, `part`
being what comes back until the next turn. That needs no count of the processes: a single one finds a whole part and
takes it; of n processes each finds part / sqrt(n) and takes part / n. A fixed window, whose units come back all at
once, is shared among the turns until its end, if there are many.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from headgate.algorithms import NEVER, Verdict
from headgate.clock import SECOND
from headgate.engine import Decision
from headgate.limit import Limit
from headgate.stores.leases.demand import HOT
from headgate.stores.leases.grants import Held
from headgate.stores.leases.terms import ends_with_window

EARLY: Final = 0.75
"""The part of the time until its turn after which a process may ask that has spent its tokens, if enough was left."""
FRESH: Final = SECOND
"""The longest time for which a spent window is not asked about: another process may have reset the key."""


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
    """The instant of the next question."""
    turn_us: int
    """The first instant at which the server may grant something: that of the next question, or later."""
    refused: int
    """Calls of this cost and of larger ones are refused."""
    cost: int
    """The cost to which the retries of the rows belong."""
    rows: tuple[Row, ...]

    def decision(self, limits: tuple[Limit, ...], key: str, units: int, now: int) -> Decision:
        """Return the refusal of a call: no retry is before the turn, nor before the bucket has the units."""
        age, least = now - self.since_us, self.turn_us - now
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
    """The pauses of the keys of some limits."""

    def __init__(self, limits: tuple[Limit, ...]) -> None:
        self._limits = limits
        self._windows = all(map(ends_with_window, limits))

    def refused(self, held: Held, key: str, units: int, missed: int, now: int) -> Decision | None:
        """Return a refusal until the next question; None if it is time for it, or if fewer units may still be there."""
        pause = held.pause
        if pause is None or units < pause.refused or now < pause.since_us:
            return None
        if not held.short and not held.missed and now - pause.since_us >= EARLY * held.wait:
            held.pause = None  # the tokens lasted nearly until the turn: the limit seems to suffice
            return None
        if now >= pause.until_us:
            if held.asking is None:
                return None
            pause = pause._replace(turn_us=now + held.wait)  # the server is slow: one question at a time
        held.missed += missed
        return pause.decision(self._limits, key, units, now)

    def renew(self, held: Held, now: int) -> None:
        """Refuse other callers while the server is asked."""
        if held.pause is not None:
            held.pause = held.pause._replace(until_us=now + held.wait, turn_us=now + held.wait)

    def see(self, held: Held, decision: Decision, parts: tuple[int, ...], now: int) -> None:
        """Note whether the server had less than was wanted: then calls are refused until the turn.

        A process of which little is known is given its share of a crowded key; it waits for its turn too, if it spends
        the share long before.
        """
        shared = held.own > 0 and held.offer > 0 and held.crowded
        wanted = max(held.wanted, held.offer) if shared else held.wanted
        if held.crowded and self._windows:  # all units until the end are wanted, and those until the turn are enough
            wanted = min(wanted, int(held.rate * held.wait) + 1)
        low = any(verdict.remaining < part for verdict, part in zip(decision.verdicts, parts, strict=True))
        single = held.short and low and decision.granted == wanted == decision.calls[0].cost  # no sign of plenty
        enough = not held.short and held.asked >= HOT  # until now: the window is used up, but not every window is
        held.short = single or not decision.allowed or decision.granted < wanted
        held.wait = max(held.least, held.wait - self._spent(decision.verdicts))  # turns begin at the end of a window
        if decision.allowed and not held.crowded and self._windows:
            held.pause = None  # the last units of a window would be lost with it
        elif shared or (held.short and not single):
            ends = now + self._spent(decision.verdicts)
            sooner = enough and self._windows and not decision.allowed and ends > now
            self._pause(held, decision, now, ends if sooner else held.turn_us)
        else:
            held.pause = None

    def see_refusal(self, held: Held, decision: Decision, now: int) -> None:
        """Note a refusal that told no turn: another caller asks for it, or has one."""
        held.short = True
        turn = now + max(held.wait, held.least) if held.pause is None else max(now, held.pause.turn_us)
        self._pause(held, decision, now, turn)

    def _spent(self, verdicts: tuple[Verdict, ...]) -> int:
        """Return the time until a limit that is used up has units again, a fixed window at its end; 0 without one."""
        each = zip(self._limits, verdicts, strict=True)
        return max((verdict.reset_us if ends_with_window(limit) else verdict.retry_us) * (not verdict.remaining)
                   for limit, verdict in each)  # fmt: skip

    def _pause(self, held: Held, decision: Decision, now: int, turn: int) -> None:
        verdicts, until = decision.verdicts, turn
        if self._spent(verdicts):
            until = min(turn, now + FRESH)
        if decision.allowed:
            least = min(verdict.remaining for verdict in verdicts)
            rows = tuple(map(_after_grant, self._limits, verdicts, (each.remaining > least for each in verdicts)))
            held.pause = Pause(now, until, turn, 1, 1, rows)
        else:
            cost = decision.calls[0].cost
            fits = min(verdict.remaining for verdict in verdicts if not verdict.allowed)
            held.pause = Pause(now, until, turn, fits + 1, cost, tuple(Row(*verdict[:4]) for verdict in verdicts))


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
