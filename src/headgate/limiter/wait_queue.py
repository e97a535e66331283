"""Waiting for admission: first come, first served.

If every limit lends (the bucket family), a caller is charged at once and told when it may go: callers go in the order
of their charges, in all processes of the store. Windows and logs cannot promise a time: the callers of a key wait in a
queue of this process, and only the first of them asks the store again, at the retry time of its refusal. A limit in
flight has no retry time: the first caller asks when a permit of the key is released in this process, and at intervals,
because another process may have released one.

Callers with an order (`priority`, `fair_by`) take no promise: they wait in such a queue too, and `line.py` says which
of them is the next.

A generator yields what a caller does; the limiters run it, in a thread or in an event loop.
"""

from __future__ import annotations

import threading
from typing import Final

from headgate.algorithms import NEVER, UNKNOWN
from headgate.call import checked_key
from headgate.engine import LONGEST_WAIT, Decision
from headgate.errors import InvalidCall
from headgate.forks import after_fork
from headgate.limit import Limit
from headgate.limiter.caller import Caller
from headgate.limiter.key_queue import KeyQueue
from headgate.limiter.promises import Promise, Promises, ready_at
from headgate.steps import Steps
from headgate.stores import Store
from headgate.waiting import checked_wait

DEFAULT_MAX_WAITING: Final = 10_000
NO_WAIT: Final = 0
A_MOMENT: Final = 10_000
"""The retry time, in microseconds, of a caller that would fit but may not pass the callers ahead."""
FIRST_LOOK: Final = 5_000
LAST_LOOK: Final = 100_000
"""How long, in microseconds, the first caller waits for a release before it asks again; the time doubles up to this."""


class WaitQueue:
    """The callers that wait for the keys of one limiter in this process."""

    def __init__(self, limits: tuple[Limit, ...], store: Store, max_waiting: int, pausable: bool = False) -> None:
        if isinstance(max_waiting, bool) or not isinstance(max_waiting, int) or max_waiting < 0:
            raise InvalidCall(f"max_waiting must be a whole number of callers, from 0; got {max_waiting!r}")
        self.clock = store.clock
        self.waiting = 0
        self.promises = Promises(store.clock)
        self.longest = LONGEST_WAIT if max_waiting else NO_WAIT
        """The longest wait of a new caller: 0 while `max_waiting` callers wait."""
        self.by_key: dict[str, KeyQueue] = {}
        """The queues by key; used only if a limit cannot lend, or if callers have an order."""
        self.lends = all(map(lends, limits))
        self._asked: dict[str, int] = {}
        """The sum of the costs in each queue; costs by name count as 0."""
        self.most = max_waiting
        self._pausable = pausable
        self._by_clock = store.decides_by_clock
        self._burst = min(limit.burst for limit in limits)
        self._lock = threading.Lock()
        after_fork(self.forget)

    def forget(self) -> None:
        """Forget all callers after a fork: they wait in the parent process."""
        self._lock = threading.Lock()
        self.promises.forget()
        self.by_key.clear()
        self._asked.clear()
        self._count(-self.waiting)

    def acquire(self, caller: Caller, timeout: float | None) -> Steps[Decision]:
        """Admit a caller as soon as its cost fits, or refuse it."""
        due_us = None if timeout is None else self.clock.now_us() + checked_wait(timeout)
        checked_key(caller.key)
        while True:
            decision = yield from self._admit(caller, due_us)
            if not (self._pausable and decision.allowed and decision.retry_us and (yield caller.paused())):
                return caller.count(decision)
            # The key was paused while the caller waited: its instant is lost, and it takes another after the pause.
            yield caller.give_back(decision)

    def _admit(self, caller: Caller, due_us: int | None) -> Steps[Decision]:
        if caller.key in self.by_key:
            return (yield from self._wait_turn(caller, due_us))
        wait = self.longest if due_us is None else max(0, min(self.longest, due_us - self.clock.now_us()))
        wait = wait if caller.order is None else NO_WAIT  # others may still go before it
        first: Decision = yield caller.ask(wait)
        if first.allowed:
            if first.retry_us or caller.key not in self.by_key:
                return (yield from self._depart(caller, first))
            # An earlier caller was refused while this answer was under way: that caller goes first.
            return (yield from self._wait_turn(caller, due_us, first))
        if first.never or self.waiting >= self.most or self.too_late(first, due_us):
            return first
        return (yield from self._wait_turn(caller, due_us))

    def _wait_turn(self, caller: Caller, due_us: int | None, spent: Decision | None = None) -> Steps[Decision]:
        """Wait in the queue, and ask the store when it is the caller's turn; `spent`, if any, is given back first."""
        if self.waiting >= self.most:
            if spent is not None:
                yield caller.give_back(spent)
            return refusal_of((yield caller.look(caller.cost)))
        ahead = self.join(caller)
        try:
            if spent is not None:
                yield caller.give_back(spent)
            if ahead is not None:
                cost = caller.cost
                if isinstance(cost, int) and caller.order is None:
                    cost = max(cost, min(ahead + cost, self._burst))
                refused: Decision = yield caller.look(cost)
                if refused.never:  # their sum is above a plan's burst: no time is known
                    refused = yield caller.look(caller.cost)
                if refused.never or self.too_late(refused, due_us) or not (yield caller.wait_for_turn(due_us)):
                    return refusal_of(refused)
            decision = yield from self._ask_in_turn(caller, due_us)
        finally:
            self.leave(caller)
        return (yield from self._depart(caller, decision)) if decision.allowed else decision

    def _ask_in_turn(self, caller: Caller, due_us: int | None) -> Steps[Decision]:
        """Ask as the first of the queue, until the caller is admitted or it is too late."""
        look = FIRST_LOOK
        while True:
            left = LONGEST_WAIT if due_us is None else max(0, min(LONGEST_WAIT, due_us - self.clock.now_us()))
            decision: Decision = yield caller.ask(left if caller.order is None else NO_WAIT)
            if decision.allowed or decision.never or self.too_late(decision, due_us):
                return decision
            pause = decision.retry_us
            if pause == UNKNOWN:
                at = self.clock.now_us() + look
                at = at if due_us is None else min(at, due_us)
                if not (yield caller.wait_for_turn(at)) and due_us is not None:
                    due_us -= max(0, at - self.clock.now_us())  # a manual clock did not move
                look = min(2 * look, LAST_LOOK)
                continue
            if self.lends and caller.order is None and pause > LONGEST_WAIT:
                pause -= LONGEST_WAIT  # from that instant on, the rest can be promised
            yield caller.sleep_until(self.clock.now_us() + pause)

    def promise(self, decision: Decision) -> Promise:
        """Record the promise of a decision that is charged for later."""
        return self.promises.add(decision, ready_at(decision, self.clock, self._by_clock))

    def _depart(self, caller: Caller, decision: Decision) -> Steps[Decision]:
        """Wait until the decision may be used; give it back if the caller does not go."""
        if not decision.retry_us:
            return (yield from self._go(caller, decision)) if self.waiting else decision
        promise = self.promise(decision)
        if self.waiting >= self.most:  # other callers came to wait meanwhile
            yield caller.give_up(promise)
            return refusal_of(decision)
        self._count(1)
        try:
            kept: Promise = yield caller.depart(promise)
        finally:
            self._count(-1)
        self.promises.left(kept)
        return kept.decision

    def _go(self, caller: Caller, decision: Decision) -> Steps[Decision]:
        """Go now, but behind callers that are due already: a busy event loop may be late."""
        try:
            yield caller.sleep_until(self.clock.now_us())
        except BaseException:
            yield caller.give_back(decision)
            raise
        return decision

    def too_late(self, refused: Decision, due_us: int | None) -> bool:
        """Return whether a refused caller cannot go before it is due."""
        if refused.allowed or due_us is None:
            return False
        if refused.unknown:
            return self.clock.now_us() >= due_us
        return refused.retry_us == NEVER or self.clock.now_us() + refused.retry_us > due_us

    def join(self, caller: Caller) -> int | None:
        """Join the end of the queue; return the sum of the costs ahead, or None for the first caller."""
        caller.queue_up()
        with self._lock:
            self._add(1)  # under the same lock: a caller that sees the new count must queue behind this one
            line = self.by_key.setdefault(caller.key, KeyQueue())
            ahead = None if line.head is None else self._asked.get(caller.key, 0)
            line.add(caller)
            self._asked[caller.key] = self._asked.get(caller.key, 0) + caller.units
            return ahead

    def leave(self, caller: Caller) -> None:
        """Leave the queue; if the first caller leaves, call the next one."""
        with self._lock:
            self._add(-1)
            line = self.by_key[caller.key]
            was_head = line.head is caller
            line.remove(caller)
            self._asked[caller.key] -= caller.units
            if line.head is None:
                del self.by_key[caller.key], self._asked[caller.key]
            elif was_head:
                line.head.call()

    def wake(self, decision: Decision) -> None:
        """Call the first caller of each key of a decision that was given back: it may ask again."""
        for call in decision.calls:
            with self._lock:
                line = self.by_key.get(call.key)
                if line is not None and line.head is not None:
                    line.head.call()

    def _count(self, more: int) -> None:
        with self._lock:
            self._add(more)

    def _add(self, more: int) -> None:
        self.waiting += more
        self.longest = LONGEST_WAIT if self.waiting < self.most else NO_WAIT


def lends(limit: Limit) -> bool:
    """Return whether a limit can charge now for later use; a limit with a block cannot."""
    return limit.step.LENDS and not limit.block_us


def refusal_of(decision: Decision) -> Decision:
    """Return a refusal with the numbers of this decision, for a caller that would fit but may not pass those ahead."""
    if not decision.allowed:
        return decision
    calls = decision.calls
    answers: list[int] = []
    for call, verdict in zip(calls, decision.verdicts, strict=True):
        if call.limit.guards:
            answers += (*verdict[:4], *verdict.mark)
            continue
        wait = UNKNOWN if call.limit.in_flight else max(verdict.retry_us, A_MOMENT)
        answers += (False, verdict.remaining, wait, wait if wait == UNKNOWN else max(verdict.reset_us, A_MOMENT), 0, 0)
    limits, keys, costs = zip(*((call.limit, call.key, call.cost) for call in calls), strict=True)
    return Decision(limits, keys, costs, answers, charged=False, degraded=decision.degraded)
