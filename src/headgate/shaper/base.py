"""The common base of both shapers: a leaky bucket that gives each caller its departure time."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from headgate.algorithms import bucket
from headgate.clock import SECOND, Clock
from headgate.engine import Decision
from headgate.errors import InvalidLimit
from headgate.limit import Limit, as_limits
from headgate.limiter import Promise, Promises
from headgate.stores import Carrying, OnError, Store, checked_namespace, checked_on_error, open_store
from headgate.waiting import checked_wait
from headgate.wording import explained

EVERYTHING: Final = "everything"
"""The default key of a pump."""


class Departure(NamedTuple):
    """A place in the queue, or a refusal. True if there was room."""

    decision: Decision
    delay_us: int
    at_us: int = 0
    """The departure time by the store's clock."""

    def __bool__(self) -> bool:
        return self.decision.allowed

    @property
    def delay(self) -> float:
        """Seconds from the call of `enter` until the departure time."""
        return self.delay_us / SECOND


class Shaping(Carrying):
    """One limit as a queue: its burst is the room in the queue."""

    _gate: Any

    @explained
    def __init__(
        self,
        limit: Limit | str,
        *,
        store: Store | str | None = None,
        namespace: str = "shaper",
        clock: Clock | None = None,
        on_error: OnError = "local",
    ) -> None:
        super().__init__()
        self.limit = as_queue(limit)
        self.limits = (self.limit,)
        self.namespace = checked_namespace(namespace)
        self.on_error = checked_on_error(on_error)
        self._opened = open_store(store, clock)
        self._owned = self._opened is not store
        self._use(self._opened)

    def _use(self, store: Store) -> None:
        """Use this store from now on; `headgate.testing` changes the store for the time of a test."""
        self.store = store
        self._promises = Promises(store.clock)

    def _freed(self, promise: Promise) -> list[Decision]:
        """Return the places to give back when this promise is given up: those whose time has not come, the last first.

        `last_place` makes the cost the burst, so the store gives a place back only if no place is behind it: a caller
        leaves when its place begins, so every place behind was promised.
        """
        now = self.store.clock.now_us()
        return [last_place(freed.decision) for freed in self._promises.free(promise) if freed.ready_us > now]

    def _too_late(self, seen: Decision, key: str, cost: int, timeout: float) -> Decision | None:
        """Return a refusal if the next caller would wait longer than `timeout`; `seen` is a peek at the queue."""
        late = seen.reset_us - checked_wait(timeout)
        if late <= 0:
            return None
        answers = [0, seen.remaining, late, seen.reset_us, 0, 0]
        return Decision(self.limits, key, (cost,), answers, charged=False, degraded=seen.degraded)

    def _departure(self, decision: Decision) -> Departure:
        if not decision.allowed:
            return Departure(decision, 0)
        params, verdict = bucket.Params(*self.limit.params), decision.verdicts[0]
        delay_us = bucket.departs(params, verdict, decision.granted)
        clock = self.store.clock
        at_us = clock.now_us() + delay_us
        if self.store.decides_by_clock and delay_us:  # from the mark, so a pause since then does not change the order
            at_us = verdict.mark[0] + (verdict.mark[1] > 0)
        return Departure(decision, delay_us, at_us)


def as_queue(limit: Limit | str) -> Limit:
    """Return the limit of a text such as `3000/second queue 5000`, or a bucket limit whose burst is the queue."""
    limit, *others = as_limits(limit, queues=True)
    if others:
        raise InvalidLimit(f"a shaper needs exactly one limit; got {'; '.join(map(str, (limit, *others)))}")
    if limit.step is not bucket or limit.block_us or not limit.amount:
        raise InvalidLimit(f"a shaper needs a bucket without a block, as in '3000/second queue 5000'; got '{limit}'")
    return limit


def last_place(decision: Decision) -> Decision:
    """Return the same charge under a limit whose burst is the cost."""
    (call,), verdict = decision.calls, decision.verdicts[0]
    alone = call.limit.replace(burst=max(1, call.cost))
    answers = [1, verdict.remaining, verdict.retry_us, verdict.reset_us, *verdict.mark]
    return Decision((alone,), call.key, (call.cost,), answers, degraded=decision.degraded)
