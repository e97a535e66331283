"""Promises: charges made now for callers that leave later.

A store can give back only the last promise of a key: if its arrival time moved back for an earlier promise, the
promises behind would be made a second time. So a promise that is given up in the middle waits here until every promise
behind it in this process is given up too, or has left; the part that drains until then is lost.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

from headgate.algorithms import bucket
from headgate.call import Call
from headgate.clock import Clock
from headgate.engine import Decision

if TYPE_CHECKING:
    from headgate.waiting.timers import LoopTimers

FEW: Final = 1000
"""The number of keys with promises above which a sweep removes promises whose instants have passed."""

Name = tuple[tuple[str, str], ...]


class Promise:
    """A charge for later use."""

    __slots__ = ("calls", "decision", "given_up", "mark", "over", "queued", "ready_us")

    def __init__(self, decision: Decision, ready_us: int) -> None:
        self.decision = decision
        self.ready_us = ready_us
        """The instant at which the caller leaves."""
        self.calls: tuple[Call, ...] = decision.calls
        self.mark = decision.verdicts[0].mark
        """The position among the other promises."""
        self.given_up = False
        self.queued = True
        """True while the promise is in the queue of its key: its instant has not passed."""
        self.over = False
        """True once the promise was given back, as far as that is possible."""

    @property
    def drained_us(self) -> int:
        """The instant from which nothing is left to give back."""
        limits = [call.limit for call in self.calls if not call.limit.guards]
        return self.ready_us + max(bucket.Params(*limit.params).depth_us for limit in limits)

    @property
    def name(self) -> Name:
        """The limits and keys: promises with the same name share a queue."""
        return tuple([(call.limit.identity, call.key) for call in self.calls])


def ready_at(decision: Decision, clock: Clock, by_clock: bool) -> int:
    """Return the instant from which a reservation may be used.

    If the store decides by this clock, the decision's marks give the instant, so a pause since then does not change the
    order. A server has another clock: its delay counts from the arrival of its answer.
    """
    if by_clock and decision.allowed and decision.retry_us and not decision.degraded:
        each = zip(decision.calls, decision.verdicts, strict=True)
        return max(
            verdict.mark[0]  # the end of a pause
            if call.limit.guards
            else bucket.usable_at(bucket.Params(*call.limit.params), verdict.mark, call.cost)
            for call, verdict in each
        )
    return clock.now_us() + (decision.retry_us if decision.allowed else 0)


class Promises:
    """The promises of one limiter in this process, by limits and keys, in the order of their charges."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.forget()

    def forget(self) -> None:
        """Forget all promises after a fork: they belong to the parent process."""
        self._queues: dict[Name, deque[Promise]] = {}
        self._lock = threading.Lock()
        self._many = FEW

    def add(self, decision: Decision, ready_us: int) -> Promise:
        """Add the promise of a caller that will leave at this instant."""
        promise = Promise(decision, ready_us)
        with self._lock:
            if len(self._queues) >= self._many:
                self._sweep()
            queue = self._queues.setdefault(promise.name, deque())
            at = len(queue)
            while at and queue[at - 1].mark > promise.mark:  # the thread charged first may arrive later
                at -= 1
            queue.insert(at, promise)
        return promise

    def left(self, promise: Promise) -> None:
        """Remove a promise whose caller has left."""
        with self._lock:
            self._prune(promise.name, self._clock.now_us())

    def free(self, promise: Promise) -> list[Promise]:
        """Return the promises to give back, in this order, now that this one is given up; each is returned once.

        These are the promises that were given up and have no promise behind them that has still to leave.
        """
        promise.given_up = True
        with self._lock:
            now, freed = self._clock.now_us(), []
            if not promise.queued and not promise.over:
                freed.append(promise)
            queue = self._queues.get(promise.name)
            while queue and (queue[-1].given_up or queue[-1].ready_us <= now):
                last = queue.pop()
                last.queued = False
                if last.given_up:
                    freed.append(last)
            for each in freed:
                each.over = True
            self._prune(promise.name, now)
            return freed

    def _prune(self, name: Name, now: int) -> None:
        """Remove promises whose callers have left, and promises that were given up and have drained."""
        queue = self._queues.get(name)
        while queue and (queue[0].drained_us if queue[0].given_up else queue[0].ready_us) <= now:
            queue.popleft().queued = False
        if not queue:
            self._queues.pop(name, None)

    def _sweep(self) -> None:
        now = self._clock.now_us()
        for name in list(self._queues):
            self._prune(name, now)
        self._many = 2 * len(self._queues) + FEW


async def depart(
    timers: LoopTimers, promise: Promise, give_up: Callable[[Promise], Coroutine[Any, Any, None]]
) -> Promise:
    """Wait for a turn in an event loop: the caller that waits longest leaves at the first instant of its kind.

    So when a caller gives up, the callers behind it move up, and the last of their promises is given up.
    """
    turns = timers.turns(promise.calls)
    turn = turns.enter(promise.ready_us, promise)
    try:
        await turn.called
    except BaseException:
        await give_up(turns.leave(turn))
        raise
    kept: Promise = turns.taken(turn)
    return kept
