"""Promises: what was charged now for a caller that leaves later.

A charge that is given up can be given back while nothing is promised behind it: a store moves its arrival time back for
the last promise and for no other, or what it promised behind would be promised again. So what is given up in the middle
waits here until everything behind it in this process is given up too, or has left; what drains until then is lost.
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
"""Keys with promises, from which on those are looked for whose instants have passed."""

Name = tuple[tuple[str, str], ...]


class Promise:
    """Something that was charged for later."""

    __slots__ = ("calls", "decision", "given_up", "mark", "over", "queued", "ready_us")

    def __init__(self, decision: Decision, ready_us: int) -> None:
        self.decision = decision
        self.ready_us = ready_us
        """When its caller leaves."""
        self.calls: tuple[Call, ...] = decision.calls
        self.mark = decision.verdicts[0].mark
        """Its position among the others."""
        self.given_up = False
        self.queued = True
        """Among those of its key: its instant has not passed."""
        self.over = False
        """Given back, as far as that is possible."""

    @property
    def drained_us(self) -> int:
        """When nothing of it is left to give back."""
        return self.ready_us + max(bucket.Params(*call.limit.params).depth_us for call in self.calls)

    @property
    def name(self) -> Name:
        """Limits and keys: those with the same wait_turn in one queue."""
        return tuple([(call.limit.identity, call.key) for call in self.calls])


class Promises:
    """What was promised to the callers of one limiter in this process, by limits and keys, in the order of charges."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.forget()

    def forget(self) -> None:
        """After a fork: what was promised was promised to the parent."""
        self._queues: dict[Name, deque[Promise]] = {}
        self._lock = threading.Lock()
        self._many = FEW

    def add(self, decision: Decision, ready_us: int) -> Promise:
        """A caller will leave at this instant."""
        promise = Promise(decision, ready_us)
        with self._lock:
            if len(self._queues) >= self._many:
                self._sweep()
            queue = self._queues.setdefault(promise.name, deque())
            at = len(queue)
            while at and queue[at - 1].mark > promise.mark:  # of threads, whoever was charged first may come later
                at -= 1
            queue.insert(at, promise)
        return promise

    def left(self, promise: Promise) -> None:
        """Its caller has left."""
        with self._lock:
            self._prune(promise.name, self._clock.now_us())

    def free(self, promise: Promise) -> list[Promise]:
        """What can be given back, in this order, where this promise was given up: each once.

        That is what was given up and has nothing behind it in this process that has still to leave.
        """
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
        """Forget those who have left, and what was given up and has drained meanwhile."""
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
    """Wait in an event loop for one's turn: the first that waits leaves at the first instant promised to one like it.

    So those behind a caller that gives up move up, and it is the last of their promises that is given up.
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
