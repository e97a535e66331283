"""Random traces near the boundaries. Purely random traces miss off-by-one errors: here the next instant is often the
retry or reset of a verdict, plus or minus one microsecond, or a boundary of the limit's windows. Where there are plans,
every act chooses one, so plans read the states that other plans have written."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from headgate.clock import MINUTE, SECOND
from headgate.engine import LONGEST_WAIT, Decision
from headgate.limit import Limit
from headgate.limiter import Limiter
from headgate.stores import Store
from headgate.testing.clock import ManualClock
from headgate.testing.reference import ReferenceStore

KEYS = ("a", "b", "\N{LATIN SMALL LETTER S WITH CARON}")


class Act(NamedTuple):
    """One call of a limiter's method at one instant."""

    at_us: int
    verb: str
    key: str
    cost: int
    wait_us: int
    plan: str | None = None


class Trace:
    """Chooses the next act from the last answer. The same seed and answers give the same trace."""

    def __init__(
        self, limits: tuple[Limit, ...], seed: int, steps: int, plans: Sequence[str] = (), pausable: bool = False
    ) -> None:
        self._random = random.Random(seed)  # noqa: S311 - not for secrets
        self._limits = limits
        self._plans = {None: limits} | {plan: Limit.parse_all(plan) for plan in plans}
        self._steps = steps
        self._pausing = ("pause",) * 3 if pausable else ()
        self._spans = [MINUTE if limit.in_flight else limit.period_us for limit in limits]
        """Typical time steps. A lease must not end in a trace, because a memory store has no leases."""
        self.start = self._random.choice((0, 1, 59_999_999, 1_700_000_000_000_000))
        self.decision: Decision | None = None

    def __iter__(self) -> Iterator[Act]:
        now = self.start
        for _ in range(self._steps):
            now = max(0, self._next_instant(now))
            giving = ("refund", "refund_spent", "refund_key", "reset")
            verbs = ("hit",) * 12 + ("reserve",) * 3 + ("peek", "take_up_to", *giving, *self._pausing)
            plan = self._random.choice(list(self._plans)) if len(self._plans) > 1 else None
            verb, key, cost = self._random.choice(verbs), self._random.choice(KEYS), self._next_cost(self._plans[plan])
            yield Act(now, verb, key, cost, self._next_wait(), plan)

    def _next_instant(self, now: int) -> int:
        pick = self._random
        span = pick.choice(self._spans)
        roll = pick.random()
        if roll < 0.3 or self.decision is None:
            return now + pick.choice((0, 0, 1, pick.randrange(span // 8 + 1)))
        if roll < 0.75:
            verdict = pick.choice(self.decision.verdicts)
            return (
                now + max(0, pick.choice((verdict.retry_us, verdict.retry_us, verdict.reset_us))) + pick.randint(-1, 1)
            )
        if roll < 0.9:
            slots = pick.choice((1, 2, 3, 6, 60))
            return now + span // slots - now % max(1, span // slots) + pick.randint(-1, 1)
        if roll < 0.95:
            return now + pick.randrange(3 * span)
        return now - pick.choice((1, span // 2, span, span + 1, 5 * span))

    def _next_wait(self) -> int:
        pick = self._random
        promised = self.decision.verdicts[0].retry_us if self.decision else 0
        chosen = pick.choice((promised + pick.randint(-1, 1), pick.choice(self._spans), LONGEST_WAIT))
        return max(0, min(chosen, LONGEST_WAIT))

    def _next_cost(self, limits: tuple[Limit, ...]) -> int:
        burst = self._random.choice(limits).burst
        below, some = max(0, burst - 1), self._random.randint(1, max(1, burst))
        return self._random.choice((1, 1, 1, 1, 0, 2, 3, burst, below, burst + 1, some))


def act(limiter: Limiter, clock: ManualClock, act: Act, last: Decision | None, spent: Decision | None) -> Decision:
    """Perform an act and return its decision, or a peek if it has none. `spent` is the last allowed decision."""
    clock.us = act.at_us
    if act.verb == "take_up_to":
        return limiter.take_up_to(act.key, act.cost, limit=act.plan)
    if act.verb == "refund" and last is not None:
        limiter.refund(last)
    elif act.verb == "refund_spent" and spent is not None:
        limiter.refund(spent)
    elif act.verb == "refund_key":
        limiter.refund(act.key, act.cost)
    elif act.verb == "reset":
        limiter.reset(act.key)
    elif act.verb == "pause":
        limiter.pause(act.key, max(1, act.wait_us) / SECOND)
    elif act.verb == "hit":
        return limiter.hit(act.key, act.cost, limit=act.plan)
    elif act.verb == "reserve":
        return limiter._reserve(act.key, act.cost, act.wait_us, act.plan)
    return limiter.peek(act.key, act.cost, limit=act.plan)


def compare(
    text: str,
    make: Callable[[ManualClock], Store],
    seed: int,
    steps: int,
    plans: Sequence[str] = (),
    pausable: bool = False,
) -> None:
    """Run one trace on a store and on the reference, with one clock; every answer must be the same."""
    trace = Trace(Limit.parse_all(text), seed, steps, plans, pausable)
    clock = ManualClock(trace.start / 1e6)
    ours = Limiter(text, store=make(clock), on_error="raise", pausable=pausable)
    theirs = Limiter(text, store=ReferenceStore(clock=clock), pausable=pausable)
    last: tuple[Decision | None, Decision | None] = (None, None)
    spent = last
    done: list[Act] = []
    for step in trace:
        done.append(step)
        mine, other = act(ours, clock, step, last[0], spent[0]), act(theirs, clock, step, last[1], spent[1])
        told = [(d.verdicts, d.binding, d.remaining, d.retry_us, d.reset_us, d.granted, d.calls) for d in (mine, other)]
        assert told[0] == told[1], f"{text}, seed {seed}: after {done[-8:]}\n{told[0]}\nis not\n{told[1]}"
        last = mine, other
        spent = last if mine.allowed and step.verb in ("hit", "take_up_to") else spent
        trace.decision = mine
